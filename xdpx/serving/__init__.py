"""A trained model as a web server: requests of many askers -> batches of rows of like length -> answers."""
