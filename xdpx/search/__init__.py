"""The pure core of hyperparameter search: which points to try, and which trials continue. No processes, no torch.

    Space -> tuner (proposes points) -> Search -> Order -> a worker trains it -> Result -> Search -> ...
                                         `-- schedule (decides which trials continue)

`Search` makes the same decisions on every machine, whatever the speed of its workers and however often it was killed.
"""
