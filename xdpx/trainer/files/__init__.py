"""Files of a Trainer: checkpoint folders, models for `from_pretrained`, model cards, uploads to the Hub."""
