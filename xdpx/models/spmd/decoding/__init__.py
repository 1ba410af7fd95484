"""Decoding of a language model: greedy, sampling or beam search, with a key-value cache."""
