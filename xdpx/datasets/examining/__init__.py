"""The checks of x-check in addition to those of x-prepro, one module each, on a common sample of rows.

`sample` reads rows, `words` splits their texts; `writing`, `columns`, `splits`, `near` and `noise` find problems;
`examination` runs all of them.
"""
