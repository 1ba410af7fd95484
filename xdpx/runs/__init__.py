"""An `x-train` run: from a checked config to a save_dir that holds everything about the run."""
