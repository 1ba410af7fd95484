"""Use a finished model: `plan.py` finds out what to build and read, `predictor.py` builds it and predicts, streaming.

`session.py` keeps it open for a program or a server: texts in, answers out.

A room of its own, below the trainer and above tasks: to predict, nothing needs to know how a model is trained, while
whoever trains, exports, tunes or serves may need to predict.
"""
