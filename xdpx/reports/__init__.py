"""Turn the logs and predictions of runs into tables and figures."""
