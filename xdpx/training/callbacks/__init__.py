"""Callbacks around training: log, evaluate, stop, save, draw. Their order matters: some read what others did."""
