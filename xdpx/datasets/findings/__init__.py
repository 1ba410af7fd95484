"""Checks for problems of data before training, one module per subject.

Each yields `Finding`s: `raw_files` from the first lines of a file, `labels` from the counts of labels, `tokens` from
statistics of tokenized texts, `same_texts` from texts that occur in several rows.
"""
