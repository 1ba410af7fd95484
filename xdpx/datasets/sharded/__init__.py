"""x-prepro as many independent tasks: each works on its part of the raw files, and one puts the results together.

`parameters` tells which task this is, `parts` which part of a raw file it takes, `frames` how results lie on disk,
`folder` what lies in `<data_dir>.shards`, `tasks` what a task does, and `gathering` how a data_dir is made of it.
"""
