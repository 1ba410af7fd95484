"""Sharded x-prepro: many independent tasks each process a part of the raw files, and the last one joins the results.

`parameters` defines which task this is, `parts` its part of each raw file, `frames` the format of results on disk,
`folder` the content of `<data_dir>.shards`, `tasks` the work of a task, and `gathering` joins all into the data_dir.
"""
