"""TensorBoard summaries of a job, with the tags that Pax uses: one folder of event files per program."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from xdpx.logger import log
from xdpx.optimizers.spmd.trees import named
from xdpx.reports.trackers.tensorboard import new_writer
from xdpx.utils import io

LEARNING = {
    "learning_rate": "lr", "grad_norm": "raw_grad_norm", "clipped_grad_norm": "clipped_grad_norm",
    "applied_grad_norm": "applied_grad_norm", "grad_scale": "grad_scale", "is_valid_step": "is_valid_step",
}  # fmt: skip
"""Fact of the learner -> its tag."""


class SummaryWriter:
    """Events of one program, e.g. `summaries/eval_test_c4`. The file is created with the first event.

    Args:
        folder: `summaries` of the job; None to write nothing.
        program: name of its subfolder.
        after: events of later steps, from before a restart, are no longer shown.
    """

    def __init__(self, folder: str | None, program: str, *, after: int | None = None) -> None:
        self._place = None if folder is None else io.join(folder, program)
        self._after = after
        self._writer: Any = None

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Write numbers by tag."""
        for tag, value in values.items():
            self._do("add_scalar", tag, value, step)
        self._do("flush")

    def texts(self, values: Mapping[str, str], step: int) -> None:
        """Write texts by tag, displayed verbatim."""
        for tag, value in values.items():
            self._do("add_text", tag, f"```\n{value}\n```", step)

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _do(self, method: str, *values: Any) -> None:
        if self._place is None:
            return
        try:
            if self._writer is None:
                purge = None if self._after is None else self._after + 1
                self._writer = new_writer(self._place, purge_step=purge)
            getattr(self._writer, method)(*values)
        except Exception as error:  # failing summaries must not end a job
            self._place = None
            log.warning(f"Summaries are turned off: {type(error).__name__}: {error}")


def metric_tags(metrics: Mapping[str, float], weights: Mapping[str, float], *, prefix: str) -> dict[str, float]:
    """Return means and weights with the tags `<prefix>/<name>` and `<prefix>/<name>-weight`."""
    tags = {f"{prefix}/{name}": value for name, value in metrics.items()}
    return tags | {f"{prefix}/{name}-weight": value for name, value in weights.items()}


def learning_tags(facts: Mapping[str, float]) -> dict[str, float]:
    """Return the learner's facts of an update, by tag."""
    tags = {f"learning/{tag}_scalar": facts[name] for name, tag in LEARNING.items() if name in facts}
    more = {f"learning/{name}_scalar": value for name, value in facts.items() if name.startswith("learning_rate_")}
    if "learning_rate" in facts:
        tags["lr_scalar"] = facts["learning_rate"]
    each = {f"per_var_{name}_scalar": value for name, value in facts.items() if name.startswith("grad_norm/")}
    return tags | more | each


def layer_tags(summaries: Mapping[str, float]) -> dict[str, float]:
    """Return the means of what layers recorded, by tag."""
    return {f"{name}_scalar": value for name, value in summaries.items()}


class WeightSizes:
    """The size of each weight, computed on the devices that hold the weights."""

    def __init__(self) -> None:
        self._compute = jax.jit(_sizes)

    def __call__(self, params: object) -> dict[str, float]:
        """Return the root mean square of each weight, and the norm of all weights together, by tag."""
        found = jax.device_get(self._compute(params))
        tags = {f"vars/{name}_scalar": math.sqrt(total / count) for name, (total, count) in found.items()}
        return tags | {"learning/var_norm_scalar": math.sqrt(sum(total for total, _ in found.values()))}


def _sizes(params: object) -> dict[str, tuple[Any, int]]:
    return {
        name: (jnp.sum(jnp.square(weight.astype(jnp.float32))), weight.size) for name, weight in named(params).items()
    }
