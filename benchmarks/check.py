"""x-check: flipped labels of real data found compared with cleanlab, rows per second, and planted faults."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import Row
from benchmarks.work import DATA, REPOSITORY, WORK, minilm, peer, write_config

FLIPPED = 0.05
SEED = 7
MANY_ROWS = 100_000
MOST_SECONDS = 10.0
LEAST_IN_COMMON = 0.99


def tables() -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Yield name, analyzer for cleanlab, and (text, label) rows of each real data set that is available."""
    sst2 = DATA / "sst2" / "train.tsv"
    if sst2.exists():
        yield "SST-2", "word", [_cut(line) for line in sst2.read_text(encoding="utf-8").splitlines()]
    hotels = DATA / "chnsenticorp" / "all.csv"
    if hotels.exists():
        with hotels.open(encoding="utf-8", newline="") as file:
            rows = [(" ".join(row["review"].split()), row["label"]) for row in csv.DictReader(file)]
        yield "ChnSentiCorp", "char", [row for row in rows if row[0]]


def _cut(line: str) -> tuple[str, str]:
    text, _, label = line.rpartition("\t")
    return text, label


def with_flips(name: str, rows: list[tuple[str, str]]) -> tuple[Path, set[int]]:
    """Write the rows with some labels changed, and return the path and the indices of these rows."""
    random = np.random.default_rng(SEED)
    labels = sorted({label for _, label in rows})
    flipped = set(random.choice(len(rows), round(FLIPPED * len(rows)), replace=False).tolist())
    folder = WORK / f"check_{name}"
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for index, (text, label) in enumerate(rows):
        others = [other for other in labels if other != label]
        lines.append(f"{text}\t{others[random.integers(len(others))] if index in flipped else label}\n")
    (folder / "train.tsv").write_text("".join(lines), encoding="utf-8")
    return folder / "train.tsv", flipped


def many(rows: list[tuple[str, str]], count: int) -> Path:
    """Write `count` rows with few duplicates: the first half of one text joined to the second half of another."""
    random = np.random.default_rng(SEED)
    folder = WORK / "check_many"
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for first, second in random.integers(len(rows), size=(count, 2)):
        (one, label), (other, _) = rows[first], rows[second]
        words, more = one.split(), other.split()
        lines.append(f"{' '.join([*words[: len(words) // 2], *more[len(more) // 2 :]])}\t{label}\n")
    (folder / "train.tsv").write_text("".join(lines), encoding="utf-8")
    return folder / "train.tsv"


def config_of(table: Path) -> str:
    """Write an x-prepro config for a table of texts and labels, with the tokenizer of a small BERT."""
    values = {
        "data_source": str(table.parent), "data_files": {table.name: "train"}, "loader": "single",
        "processor": "bert_single", "tokenizer": "bert", "vocab_file": str(minilm() / "vocab.txt"),
        "data_dir": str(WORK / "check_data"), "max_len": 128,
    }  # fmt: skip
    return write_config(f"check_{table.parent.name}_{table.stem}", values)


def checked(table: Path, *settings: str) -> tuple[dict[str, Any], float]:
    """Run x-check on a table, and return its output and its seconds."""
    words = [sys.executable, "-m", "xdpx.run", "x-check", config_of(table), *settings, "--json"]
    start = time.perf_counter()
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True)
    if done.returncode not in {0, 2}:
        raise SystemExit(f"x-check ended with {done.returncode}:\n{done.stderr[-4000:]}")
    told: dict[str, Any] = json.loads(done.stdout)
    return told, time.perf_counter() - start


def precision_recall(found: list[int], flipped: set[int]) -> tuple[float, float]:
    """Return (precision, recall) of the found rows with respect to the flipped ones."""
    hits = len(flipped & set(found))
    return hits / max(len(found), 1), hits / len(flipped)


def measure() -> Iterator[Row]:
    """Compare both tools on flipped labels of each data set, then time a hundred thousand rows."""
    for name, analyzer, rows in tables():
        yield from _noise(name, analyzer, rows)
    sst2 = next(tables())[2]
    told, seconds = checked(many(sst2, MANY_ROWS))
    parts = ", ".join(f"{part} {value:.1f}" for part, value in told["seconds"].items())
    measured = f"{seconds:.1f} s ({parts})"
    limit = f"< {MOST_SECONDS:.0f} s"
    yield Row("x-check of 100,000 rows, whole command", measured, limit, seconds < MOST_SECONDS)


def _noise(name: str, analyzer: str, rows: list[tuple[str, str]]) -> Iterator[Row]:
    from xdpx.config.loading import load
    from xdpx.datasets.examining.examination import examine

    table, flipped = with_flips(name, rows)
    theirs = peer("cleanlab_noise.py", str(table), analyzer)
    run = load(config_of(table), "x-prepro")[0]
    start = time.perf_counter()
    known = examine(run).crossed
    seconds = time.perf_counter() - start
    if known is None:
        raise SystemExit(f"{name}: no model was made")
    found = known.rows[known.suspects].tolist()
    ours, others = precision_recall(found, flipped), precision_recall(theirs["rows"], flipped)
    for what, mine, other in zip(("precision", "recall"), ours, others, strict=True):
        title = f"{name}, {FLIPPED:.0%} of {len(rows):,} labels flipped: {what} beside cleanlab (TF-IDF, regression)"
        yield Row(title, f"{mine:.3f} against {other:.3f}", ">= cleanlab", mine >= other)
    shares = WORK / "check_shares.npz"
    np.savez(shares, labels=known.given, shares=known.shares)
    same = set(peer("cleanlab_shares.py", str(shares))["rows"])
    common = len(same & set(known.suspects.tolist())) / max(len(same | set(known.suspects.tolist())), 1)
    title = f"{name}: rows that cleanlab finds too, given our probabilities"
    yield Row(title, f"{common:.3f}", f">= {LEAST_IN_COMMON}", common >= LEAST_IN_COMMON)
    yield Row(f"{name}: seconds of x-check over those of cleanlab and its model", f"{seconds / theirs['seconds']:.2f}",
              "", True)  # fmt: skip
