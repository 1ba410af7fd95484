"""x-prepro with the BERT tokenizer compared with `datasets.map`: rows per second, equal ids, memory, scaling."""

from __future__ import annotations

import hashlib
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

import numpy as np

from benchmarks.report import Row, spread
from benchmarks.work import DATA, REPOSITORY, WORK, command, minilm, peer, repeated, write_config

ROWS = 1_000_000
MANY_ROWS = 5_000_000
MAX_LEN = 128
REPEATS = 2
GIB = 1 << 30


def config(name: str, table: Path, workers: int) -> str:
    """Write an x-prepro config for a labelled table of single texts, and return its path."""
    shutil.rmtree(WORK / name, ignore_errors=True)
    return write_config(
        name,
        {
            "data_source": str(table.parent),
            "data_files": {table.name: "train"},
            "data_dir": str(WORK / name),
            "vocab_file": str(minilm() / "vocab.txt"),
            "processor": "bert_single",
            "loader": "single",
            "tokenizer": "bert",
            "max_len": MAX_LEN,
            "target_type": "index",
            "workers": workers,
        },
    )


def our_ids_sha256(folder: Path) -> str:
    """Return the hash of all ids of our store in row order, as the peer script hashes its own."""
    from xdpx.datasets.store import Store
    from xdpx.processors.samples import Ragged

    ids = cast(Ragged, Store.open(str(folder / "train.pt")).columns["input_ids"])
    return hashlib.sha256(np.asarray(ids.values, np.int32).tobytes()).hexdigest()


def proportional_memory(root: int) -> int:
    """Return the sum of the proportional set sizes of a process and its descendants, in bytes."""
    children = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True).stdout
    parents = [tuple(map(int, line.split())) for line in children.splitlines()]
    family = {root}
    while more := {pid for pid, parent in parents if parent in family and pid not in family}:
        family |= more
    total = 0
    for pid in family:
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += next(int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Pss:"))
    return total


def peak_memory(*words: str) -> int:
    """Run a command and return the peak memory of it and its workers together, in bytes."""
    process = subprocess.Popen(
        [sys.executable, "-m", "xdpx.run", *words], cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    peak = 0
    while process.poll() is None:
        peak = max(peak, proportional_memory(process.pid))
        time.sleep(0.1)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {process.returncode}")
    return peak


def measure() -> list[Row]:
    """Time both tools in turn with a million rows; then, with five million, compare one and two workers, and memory."""
    table = repeated(DATA / "sst2" / "train.tsv", ROWS)
    ratios, same = [], True
    for _ in range(REPEATS):
        ours = command("x-prepro", config("prepro_two", table, 2))
        theirs = peer("datasets_map.py", str(table), str(minilm() / "vocab.txt"), str(MAX_LEN), "2")
        ratios.append(theirs["seconds"] / ours)
        same = same and theirs["ids_sha256"] == our_ids_sha256(WORK / "prepro_two")
    long_table = repeated(DATA / "sst2" / "train.tsv", MANY_ROWS)
    scaling = [
        command("x-prepro", config("prepro_one", long_table, 1))
        / command("x-prepro", config("prepro_two", long_table, 2))
        for _ in range(REPEATS)
    ]
    baseline = peak_memory("x-prepro", config("prepro_small", repeated(DATA / "sst2" / "train.tsv", 1000), 2))
    many = peak_memory("x-prepro", config("prepro_many", long_table, 2))
    return [
        Row(
            "rows/s of the whole x-prepro command, over datasets.map alone, 1M rows, 2 processes each",
            f"{spread(ratios)}x",
            ">= 4x",
            statistics.median(ratios) >= 4,
        ),
        Row("the ids of both, hashed", "equal" if same else "different", "equal", same),
        Row(
            "two workers over one, 5M lines",
            f"{spread(scaling)}x",
            "scales to both cores",
            statistics.median(scaling) > 1.5,
        ),
        Row(
            "memory for 5M lines above that for 1,000, all processes",
            f"{(many - baseline) / GIB:.2f} GiB",
            "<= 1 GiB",
            many - baseline <= GIB,
        ),
    ]
