"""Metrics of one split as users read them: on the console, and in `<split>_results.json`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import numpy as np
import torch

from xdpx.logger import log
from xdpx.reports.run_tables import evaluated
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


def speed_metrics(split: str, started: float, **counts: float) -> dict[str, float]:
    """Give the seconds since `started` (of `time.time`), and each count per second, e.g. `num_samples`."""
    seconds = time.time() - started
    metrics = {f"{split}_runtime": round(seconds, 4)}
    if seconds > 0:
        for name, count in counts.items():
            metrics[f"{split}_{name.removeprefix('num_')}_per_second"] = round(count / seconds, 3)
    return metrics


def prefixed(metrics: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Give the same metrics, each name beginning with `<prefix>_`."""
    return {name if name.startswith(f"{prefix}_") else f"{prefix}_{name}": value for name, value in metrics.items()}


def plain_numbers(value: Any) -> Any:
    """Give Python's own numbers for numpy's and for tensors of one element, so that JSON can hold them."""
    if isinstance(value, dict):
        return {name: plain_numbers(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain_numbers(part) for part in value)
    one = isinstance(value, np.generic) or (isinstance(value, torch.Tensor) and value.numel() == 1)
    return value.item() if one else value


def wanted_metric(args: Any, metrics: dict[str, float]) -> float:
    """Give the metric that decides which model is best.

    Raises:
        KeyError: the evaluation did not give it; the message lists what it gave.
    """
    name = evaluated(args.metric_for_best_model)
    if name not in metrics:
        raise KeyError(
            f"metric_for_best_model: the evaluation gave no '{name}', only {', '.join(sorted(metrics))}. "
            "Let compute_metrics return it, or set metric_for_best_model to one of these."
        )
    return metrics[name]


class ReportsMetrics:
    """The methods of a Trainer that tell metrics, or write them into its output folder; on its first process."""

    args: Any
    state: Any
    world: Any

    def save_state(self) -> None:
        """Write `trainer_state.json`."""
        if self.world.is_main:
            self.state.save_to_json(io.join(self.args.output_dir, "trainer_state.json"))

    def metrics_format(self, metrics: dict[str, Any]) -> dict[str, Any]:
        """Give metrics as texts for people."""
        return formatted(metrics)

    def log_metrics(self, split: str, metrics: dict[str, Any]) -> None:
        """Tell the metrics of a split."""
        if self.world.is_main:
            show(split, metrics)

    def save_metrics(self, split: str, metrics: dict[str, Any], combined: bool = True) -> None:
        """Write `<split>_results.json`, and with `combined` also put them into `all_results.json`."""
        if self.world.is_main:
            save(self.args.output_dir, split, metrics, combined=combined)
