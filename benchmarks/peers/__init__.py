"""The same work with other tools, each in its own process; every script prints one line of JSON."""
