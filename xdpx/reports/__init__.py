"""Logs and predictions of runs -> tables and figures."""
