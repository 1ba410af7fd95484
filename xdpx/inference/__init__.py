"""Use a trained model: `plan.py` decides what to build and read, `predictor.py` builds it and predicts in a stream.

`session.py` keeps it open for a program or a server: texts in, answers out.

A package of its own, below the trainer and above tasks: predicting needs to know nothing of how a model is trained,
while training, exporting, tuning and serving may all need to predict.
"""
