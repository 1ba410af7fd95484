"""The pure core of hyperparameter search: what is tried, who goes on, and why. It starts no process and needs no torch.

    Space -> tuner (who is proposed) -> Search -> Order -> somebody trains it -> Result -> Search -> ...
                                         `-- schedule (who goes on)

`Search` decides the same on every machine, however fast its workers are and however often it was killed.
"""
