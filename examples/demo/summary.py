"""Say what the demo made and what to try next. Usage: python summary.py DEMO_FOLDER."""

from __future__ import annotations

import csv
import sys
from collections import Counter
from pathlib import Path


def main() -> None:
    """Print the test accuracy beside that of always naming the commonest topic, and where the outputs are."""
    folder = Path(sys.argv[1])
    rows = [line.rstrip("\n").split("\t") for line in (folder / "raw/test.tsv").open(encoding="utf-8")]
    topics = Counter(row[-1] for row in rows)
    with (folder / "scores.tsv").open(encoding="utf-8") as file:
        scores = {row["split"]: row for row in csv.DictReader(file, delimiter="\t")}
    majority = max(topics.values()) / len(rows)
    plots = sorted(path.name for path in (folder / "run/plots").glob("*.png"))
    accuracy = float(scores["test"]["acc"])
    print(f"""
accuracy on {len(rows)} test docstrings: {accuracy:.3f}   (always the most frequent topic: {majority:.3f})
predictions   {folder}/predictions.tsv
plots         {folder}/run/plots/   {", ".join(plots)}
everything    {folder}/run/         args.py, logs, checkpoints, a snapshot of the code

What to try next:
  x-train examples/demo/train --dry                          every parameter of the run, changed ones marked *
  x-train examples/demo/train learning_rate=0.001 save_dir=demo/run2
  x-viz save_dir=demo/run2 ref_dir=demo/run                  both runs in one picture, by samples seen
  x-script aggregate_results demo                            all runs in one table
  x-train --help                                             every key, its default and its meaning
README.md has the tour; docs/ the whole language.""")


if __name__ == "__main__":
    main()
