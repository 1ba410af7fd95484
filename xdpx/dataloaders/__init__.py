"""How the Trainer comes by its batches: order, shares of the ranks, collation, columns, and the way back for predictions.

The order of samples, and what is drawn from the global random generators while batches are made, is that of the
original: for equal seeds the same samples meet in the same batches, and dropout falls on the same places.
"""
