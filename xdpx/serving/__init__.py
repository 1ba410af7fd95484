"""A trained model as a web server: requests of many clients -> batches of rows of similar length -> answers."""
