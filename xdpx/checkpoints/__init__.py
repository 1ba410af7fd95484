"""Checkpoints: file names, atomic saving, verification, the aliases `<best>` and `<last>`, and retention."""
