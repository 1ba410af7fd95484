"""Names and columns of the two tables that any training can write, which `x-viz` draws and scripts join."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TypeVar

from xdpx.logger import log
from xdpx.reports.growing_table import Cell
from xdpx.reports.windows import Window

TRAIN_LOG = "train.log.tsv"
VALID_LOG = "valid.log.tsv"
BEST_STEP = "best_step"
"""Column of the latter, only in a run whose best score was reset: the new one may be equal to the one before."""

EVAL = "eval_"
"""Prefix of evaluation metrics in the Trainer, where everything is logged together."""

COLUMNS = {"grad_norm": "gnorm", "learning_rate": "lr", "steps_per_second": "ups", "tokens_per_second": "wps"}
"""Names under which the Trainer logs a quantity -> name of its column."""

Row = dict[str, Cell]
T = TypeVar("T")


def beside(known: Container[str], own: Mapping[str, T]) -> dict[str, T]:
    """Return a user's numbers by free names: one called as a column of XDPX becomes `own_<name>`, with a warning.

    Args:
        known: names of columns that XDPX fills itself.
        own: summaries or metrics of the user.
    """
    taken = [name for name in own if name in known]
    if taken:
        told = ", ".join(f"{name} as own_{name}" for name in taken)
        log.warning(f"a summary or metric of yours has the name of an XDPX column: logging {told}", once=True)
    return {f"own_{name}" if name in known else name: value for name, value in own.items()}


def evaluated(name: object) -> str:
    """Return the name that a metric of an evaluation has in the Trainer."""
    return f"{EVAL}{str(name).removeprefix(EVAL)}"


def train_row(epoch: int, step: int, window: Window, *, metrics: Mapping[str, float], last: Mapping[str, float]) -> Row:
    """Return a row of train.log.tsv.

    Args:
        epoch: from 1.
        step: number of updates so far.
        window: over the updates since the previous row.
        metrics: over this window: `loss` and others.
        last: facts of the last update: grad_norm, clipped, learning_rate.
    """
    row: Row = {"epoch": epoch, "step": step, "loss": metrics["loss"]}
    row |= {"gnorm": last.get("grad_norm", 0.0), "clip": int(last.get("clipped", 0))}
    row |= {"wps": window.per_second("num_tokens"), "ups": window.updates_per_second}
    others = {**metrics, "lr": float(last.get("learning_rate", 0.0))}
    return row | beside(row, {name: others[name] for name in sorted(others) if name != "loss"})


def valid_row(
    epoch: int,
    step: int,
    window: Window,
    *,
    train_wall: float,
    train: Mapping[str, float],
    valid: Mapping[str, float],
    more: Mapping[str, Cell],
    best_score: float | None,
) -> Row:
    """Return a row of valid.log.tsv.

    Args:
        epoch: from 1.
        step: the update whose weights were evaluated.
        window: over the updates since the previous evaluation.
        train_wall: seconds of training so far.
        train: training metrics over this window: `loss` and others.
        valid: metrics on the held-out data.
        more: further columns.
        best_score: best value of the deciding metric so far.
    """
    row: Row = {"epoch": epoch, "step": step}
    row |= {"ups": window.updates_per_second, "wps": window.per_second("num_tokens")}
    row |= {"train_wall": train_wall, "train_loss": train["loss"]}
    row |= {"gnorm": window.mean("grad_norm"), "clip": window.mean("clipped")}
    row |= {f"train_{name}": train[name] for name in sorted(train) if name != "loss"}
    row |= {f"valid_{name}": valid[name] for name in sorted(valid)}
    row |= beside({*row, "best_score", BEST_STEP}, {name: more[name] for name in sorted(more)})
    row["best_score"] = best_score
    return row
