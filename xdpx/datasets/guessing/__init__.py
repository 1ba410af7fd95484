"""What a file that somebody sent holds, found by looking at it: one module for each thing that is decided.

`encodings` bytes -> text, `reading` file -> table, `columns` table -> texts, label, task, `splitting` rows -> splits.
Each gives `Decision`s, which say what was decided, how sure that is and which key overrides it; what cannot be known is
asked for in a ConfigError.
"""
