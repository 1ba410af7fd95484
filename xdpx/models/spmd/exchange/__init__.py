"""Weights of Hugging Face models in and out: maps of names and shapes, and templates from a config.json."""
