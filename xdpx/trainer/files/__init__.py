"""What a Trainer leaves on disk: its checkpoint folders, models ready for `from_pretrained`, model cards, the Hub."""
