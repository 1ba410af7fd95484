"""Golden runs: what training computed before a change, to be compared to the bit with what it computes after it.

`python -m tests.golden check [NAME ...]` trains every run (or those whose names contain one of the words) anew and
prints what differs from the files beside this one; `python -m tests.golden write [NAME ...]` writes it down instead,
which a commit does only when it says why numbers changed, and by how much.

A line of `x_train.txt`, `trainer.txt` or `x_exp.txt` is one run: its name, every logged loss as `float.hex()`, and the
SHA-256 of the final weights. Last bits depend on the processor and on libraries, which stand on top of each file: where
those are others, losses are compared to 1e-5 (in half precision to 1e-2), and weights not at all.

The runs go through the doors that users go through, and read the files and logs that users read.
"""
