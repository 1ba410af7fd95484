"""What a run leaves on disk: names, whole-or-nothing saving, verification, `<best>` and `<last>`, retention."""
