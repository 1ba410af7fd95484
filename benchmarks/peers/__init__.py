"""The same work as it is done with other tools, each in its own process; every script prints one JSON line."""
