"""Data for the Trainer: order of samples, parts of the ranks, collation, columns; and concatenation of predictions.

The order of samples and the draws from the global random generators while batches are made are those of the
original: for equal seeds batches consist of the same samples, and dropout masks are the same.
"""
