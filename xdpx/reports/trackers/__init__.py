"""Where the numbers of a training are logged while it runs. A tracker is an object that handles training events."""
