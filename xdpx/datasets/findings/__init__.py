"""What looks wrong with data, said before anybody trains on them: one module for each thing that is looked at.

Each gives `Finding`s: `raw_files` of the first lines of a file, `labels` of how often each label stands where,
`tokens` of what a vocabulary makes of texts, `same_texts` of texts that stand in several rows.
"""
