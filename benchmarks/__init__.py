"""Speed compared with other tools in the same run. Start with `make bench` or `python -m benchmarks [NAME ...]`."""
