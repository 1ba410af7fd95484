"""The two tables that every training may leave, for `x-viz` to draw and scripts to join: their names and columns."""

from __future__ import annotations

from collections.abc import Mapping

from xdpx.reports.growing_table import Cell
from xdpx.reports.windows import Window

TRAIN_LOG = "train.log.tsv"
VALID_LOG = "valid.log.tsv"

EVAL = "eval_"
"""How names of metrics of an evaluation begin in a Trainer, where all are logged together."""

COLUMNS = {"grad_norm": "gnorm", "learning_rate": "lr", "steps_per_second": "ups", "tokens_per_second": "wps"}
"""What the Trainer logs under another name than that of its column."""

Row = dict[str, Cell]


def evaluated(name: object) -> str:
    """Return the name by which a Trainer knows a metric of an evaluation."""
    return f"{EVAL}{str(name).removeprefix(EVAL)}"


def train_row(epoch: int, step: int, window: Window, *, metrics: Mapping[str, float], last: Mapping[str, float]) -> Row:
    """Return a row of train.log.tsv.

    Args:
        epoch: from 1.
        step: the update after which the row stands.
        window: of the updates since the row before.
        metrics: over this window: `loss`, and others.
        last: facts of the update itself: grad_norm, clipped, learning_rate.
    """
    row: Row = {"epoch": epoch, "step": step, "loss": metrics["loss"]}
    row |= {"gnorm": last.get("grad_norm", 0.0), "clip": int(last.get("clipped", 0))}
    row |= {"wps": window.per_second("num_tokens"), "ups": window.updates_per_second}
    others = {**metrics, "lr": float(last.get("learning_rate", 0.0))}
    return row | {name: others[name] for name in sorted(others) if name != "loss"}


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
        step: the update whose weights were scored.
        window: of the updates since the evaluation before.
        train_wall: seconds of training so far.
        train: metrics of training over this window: `loss`, and others.
        valid: metrics of the held-out data.
        more: further columns.
        best_score: of the metric that decides, so far.
    """
    row: Row = {"epoch": epoch, "step": step}
    row |= {"ups": window.updates_per_second, "wps": window.per_second("num_tokens")}
    row |= {"train_wall": train_wall, "train_loss": train["loss"]}
    row |= {"gnorm": window.mean("grad_norm"), "clip": window.mean("clipped")}
    row |= {f"train_{name}": train[name] for name in sorted(train) if name != "loss"}
    row |= {f"valid_{name}": valid[name] for name in sorted(valid)}
    row |= {name: more[name] for name in sorted(more)}
    row["best_score"] = best_score
    return row
