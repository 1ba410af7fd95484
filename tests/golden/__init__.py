"""Golden runs: results of trainings recorded before a change, to be compared bit by bit with those after it.

`python -m tests.golden check [NAME ...]` repeats every run (or those whose names contain one of the words) and prints
how it differs from the files in this folder; `python -m tests.golden write [NAME ...]` records it instead. A commit
with new records must state why the numbers changed, and by how much.

A line of `x_train.txt`, `trainer.txt` or `x_exp.txt` is one run: its name, every logged loss as `float.hex()`, and the
SHA-256 of the final weights. The last bits depend on the processor and on libraries, which are listed at the top of
each file: on others, losses are compared to 1e-5 (1e-2 in half precision), and weights are not compared.

The runs use the same interfaces, files and logs as users do.
"""
