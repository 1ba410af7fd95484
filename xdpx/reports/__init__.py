"""TODO one line: what this room decides."""
