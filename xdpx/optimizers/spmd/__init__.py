"""Optimizers, schedules and learners of the JAX engine, as pure functions."""
