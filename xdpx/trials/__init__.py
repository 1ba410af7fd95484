"""Many trainings with different settings, of which the best is wanted; each is a call of somebody's `train`."""
