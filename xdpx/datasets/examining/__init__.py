"""What x-check looks at beyond x-prepro: one module for each thing, all on the same sample of rows, as arrays.

`sample` reads rows, `words` cuts their texts; `writing`, `columns`, `splits`, `near` and `noise` find what is wrong;
`examination` does all of it in order.
"""
