"""Import and export weights of Hugging Face models: maps of names and shapes, and templates from a config.json."""
