"""Optimizers and schedules of the PyTorch engine."""
