"""How the Trainer comes by its batches: order, shares of the ranks, collation, columns; and how predictions are joined.

The order of samples, and what is drawn from the global random generators while batches are made, is that of the
original: for equal seeds the same samples meet in the same batches, and dropout falls on the same places.
"""
