"""The loss of a Trainer: which function computes it, how users' methods are called, and what is summed between logs."""
