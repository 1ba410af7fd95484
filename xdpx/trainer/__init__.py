"""The `Trainer`, with the interface of the Hugging Face Trainer: arguments, callbacks, data, loss and files."""
