"""Training, as all doors share it: lifecycle, loop, callbacks, and accumulation of metrics."""
