"""What looks on while a model is trained: it logs, scores, stops, saves and draws. Order matters, see `training.py`."""
