"""Which loss a Trainer trains on, how the user's methods are called for it, and what is summed from log to log."""
