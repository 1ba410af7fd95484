"""Guess the format of a file of data by examining it, one module per step.

`encodings` bytes -> text, `reading` file -> table, `columns` table -> texts, label, task, `splitting` rows -> splits.
Each returns `Decision`s with the choice, its certainty, and the key that overrides it; if something cannot be guessed,
a ConfigError asks for it.
"""
