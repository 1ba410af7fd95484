"""Text from a language model: greedy, sampled or by beams, with a key-value cache."""
