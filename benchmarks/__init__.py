"""Speed side by side with peers, in one run. Start with `make bench` or `python -m benchmarks [NAME ...]`."""
