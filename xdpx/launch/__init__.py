"""Start the processes of one training together, and know those that a launcher has started."""
