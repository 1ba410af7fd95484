"""What users of the Hugging Face Trainer know as callbacks: the state they read, the events, the built-in ones."""
