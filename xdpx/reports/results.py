"""Metrics of one split as users read them: on the console, and in `<split>_results.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from xdpx.logger import log
from xdpx.utils import commit, io

GIGA = 10**9


def formatted(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Give metrics as texts for people: times as h:m:s, operations in GF, memory in MB, others with four digits."""
    return {name: _formatted(name, value) for name, value in metrics.items()}


def _formatted(name: str, value: Any) -> Any:
    if "_mem_" in name:
        return f"{int(value) >> 20}MB"
    if name.endswith("_runtime"):
        return str(timedelta(seconds=round(float(value), 2)))[:-4] if value % 1 else str(timedelta(seconds=int(value)))
    if name.endswith("total_flos"):
        return f"{int(value) // GIGA}GF"
    return round(value, 4) if isinstance(value, float) else value


def show(split: str, metrics: Mapping[str, Any]) -> None:
    """Tell the metrics of a split, one per line, in columns."""
    texts = {name: str(value) for name, value in formatted(metrics).items()}
    width, column = max(map(len, texts), default=0), max(map(len, texts.values()), default=0)
    lines = [f"  {name:{width}} = {texts[name]:>{column}}" for name in sorted(texts)]
    log.info("\n".join([f"{split} metrics", *lines]))


def save(folder: str, split: str, metrics: Mapping[str, Any], *, combined: bool) -> None:
    """Write `<split>_results.json`; with `combined`, also put them into `all_results.json`."""
    _write(io.join(folder, f"{split}_results.json"), dict(metrics))
    if combined:
        path, known = io.join(folder, "all_results.json"), {}
        if io.exists(path):
            with io.open(path) as file:
                known = json.load(file)
        _write(path, known | dict(metrics))


def _write(path: str, metrics: dict[str, Any]) -> None:
    commit.write_text(path, json.dumps(metrics, indent=4, sort_keys=True) + "\n")
