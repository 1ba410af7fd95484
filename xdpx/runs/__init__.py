"""An `x-train` run: from a checked config to a save_dir that tells and keeps everything about it."""
