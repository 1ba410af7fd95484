"""Metrics of one split as users read them: on the console and in `<split>_results.json`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any

import numpy as np

from xdpx.reports.run_tables import evaluated
from xdpx.utils import commit, io
from xdpx.utils.aside import clear_way, set_aside, text_of

GIGA = 10**9


def formatted(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics formatted for people: times as h:m:s, operations in GF, memory in MB, others to 4 decimals."""
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
    """Print the metrics of a split to standard output, one per line, aligned; scripts parse this output."""
    texts = {name: str(value) for name, value in formatted(metrics).items()}
    width, column = max(map(len, texts), default=0), max(map(len, texts.values()), default=0)
    lines = [f"  {name:{width}} = {texts[name]:>{column}}" for name in sorted(texts)]
    print("\n".join([f"***** {split} metrics *****", *lines]))  # noqa: T201 - what users pipe into files


def save(folder: str, split: str, metrics: Mapping[str, Any], *, combined: bool) -> None:
    """Write `<split>_results.json`; with `combined`, also merge the metrics into `all_results.json`."""
    _write(io.join(folder, f"{split}_results.json"), dict(metrics))
    if combined:
        path = io.join(folder, "all_results.json")
        _write(path, _known(path) | dict(metrics))


def _known(path: str) -> dict[str, Any]:
    """Return the current content of the file; a damaged one is set aside."""
    if not io.exists(path):
        return {}
    text, trouble = text_of(path)
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError) as error:
        set_aside(path, trouble or f"is not a table of metrics ({error})", then="a new one is started")
        return {}


def _write(path: str, metrics: dict[str, Any]) -> None:
    text = json.dumps(metrics, indent=4, sort_keys=True, default=partial(listed, where=path))
    clear_way(path)
    commit.write_text(path, text + "\n")


def speed_metrics(split: str, started: float, **counts: float) -> dict[str, float]:
    """Return the seconds since `started` (from `time.time`) and, for each count, e.g. `num_samples`, its rate."""
    seconds = time.time() - started
    metrics = {f"{split}_runtime": round(seconds, 4)}
    if seconds > 0:
        for name, count in counts.items():
            metrics[f"{split}_{name.removeprefix('num_')}_per_second"] = round(count / seconds, 3)
    return metrics


def prefixed(metrics: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the metrics with each name prefixed by `<prefix>_`, unless it already is.

    One that gets the prefix wins over one that has it: a `loss` of `compute_metrics` is the `eval_loss`, as in the
    original.
    """
    had = {name: value for name, value in metrics.items() if name.startswith(f"{prefix}_")}
    return had | {f"{prefix}_{name}": value for name, value in metrics.items() if name not in had}


def listed(value: object, *, where: str) -> Any:
    """Return a NumPy or torch number or array in a form for JSON. Raises TypeError for other objects.

    Args:
        value: a metric, or what was logged.
        where: the file it is for, named in the message.
    """
    if hasattr(value, "tolist"):
        return value.tolist()
    advice = "Log numbers, strings, or lists and dicts of them."
    raise TypeError(f"{where} cannot hold {value!r} ({type(value).__name__}). {advice}")


def plain_numbers(value: Any) -> Any:
    """Convert NumPy scalars and one-element tensors to Python numbers, recursively, so that JSON can hold them."""
    if isinstance(value, dict):
        return {name: plain_numbers(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(plain_numbers(part) for part in value)
    torch = sys.modules.get("torch")  # not imported for a callback of a JAX job, which would take a second
    one = torch is not None and isinstance(value, torch.Tensor) and value.numel() == 1
    return value.item() if one or isinstance(value, np.generic | np.ndarray) and value.ndim == 0 else value


def wanted_metric(metric: str, metrics: dict[str, float]) -> float:
    """Return the metric that decides which model is best (`metric_for_best_model`).

    Raises:
        KeyError: if the evaluation did not return it; the message lists the metrics that it returned.
        TypeError: if it is not a number.
    """
    name = evaluated(metric)
    if name not in metrics:
        raise KeyError(
            f"metric_for_best_model: the evaluation returned no '{name}', only {', '.join(sorted(metrics))}. "
            "Let compute_metrics return it, or set metric_for_best_model to one of these."
        )
    value = plain_numbers(metrics[name])
    if not isinstance(value, int | float):
        raise TypeError(
            f"metric_for_best_model: {name} is {value!r:.200}, and must be a number. Let compute_metrics return one, "
            "or name another metric."
        )
    return value
