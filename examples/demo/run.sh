#!/usr/bin/env bash
# The whole road on real text: docstrings of Python's standard library, sorted into nine topics. Start it with `make demo`.
set -euo pipefail
cd "$(dirname "$0")/../.."
python examples/demo/stdlib_docstrings.py demo/raw
x-prepro examples/demo/prepro \
  x-train examples/demo/train overwrite=true \
  x-eval examples/demo/eval \
  x-pred examples/demo/predict
python examples/demo/summary.py demo
