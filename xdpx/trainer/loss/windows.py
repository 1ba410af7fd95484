"""What the Trainer logs besides loss and gradient norm: recorded values, speed, non-finite updates."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from time import perf_counter
from typing import Any

from torch import Tensor

from xdpx.engines.pytorch import collectives
from xdpx.reports.run_tables import beside
from xdpx.reports.windows import Window
from xdpx.trainer.data.first_rows import warn_of_unlike_orders
from xdpx.training.accumulation import MetricAccumulator

ENDING = "_loss"
"""Ending of the names of model outputs that are logged beside the loss."""

WAITED = "waited"
"""Fact of an update: the seconds that this process waited for its data."""


READ = "read"
"""Fact of an update: the digests of the first rows of the epochs that began before it; see `StreamOrders`."""


OWN_COLUMNS = frozenset({
    "loss", "loss_unfiltered", "grad_norm", "learning_rate", "epoch", "step", "num_input_tokens_seen",
    "nonfinite_steps", "samples_per_second", "steps_per_second", "tokens_per_second", "data_wait_share", "eval_loss",
    "train_loss",
})  # fmt: skip
"""What the Trainer logs itself; values recorded by these names get others."""


class DataClock:
    """Counts the seconds that an update waits for its data."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def timed(self, batches: Iterator[Any]) -> Generator[Any]:
        """Yield the same batches, and measure the time spent waiting for each."""
        while True:
            asked = perf_counter()
            try:
                batch = next(batches)
            except StopIteration:
                return
            finally:
                self._seconds += perf_counter() - asked
            yield batch

    def take(self) -> float:
        """Return the seconds since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds


def record_losses(accumulator: MetricAccumulator, outputs: object) -> None:
    """Record each output of a model whose name ends in `_loss`; of several elements their mean."""
    if not isinstance(outputs, dict):
        return
    for name, value in outputs.items():
        if isinstance(name, str) and name.endswith(ENDING):
            if isinstance(value, Tensor) and value.numel() > 0:
                accumulator.record(name, value if value.dim() == 0 else value.detach().float().mean())
            elif isinstance(value, float | int):
                accumulator.record(name, value)


def over_ranks(window: Window, tokens: int | None) -> dict[str, float]:
    """Return the values to log for the updates of all processes; on all processes.

    Args:
        window: that of this process. Facts: samples, waited, left_out (the same on all processes).
        tokens: of all processes in these updates; None if they are not counted.

    Returns:
        Means of recorded values, those with a name of `OWN_COLUMNS` as `own_<name>`; samples_per_second,
            steps_per_second, tokens_per_second, data_wait_share (the largest among the processes, from 0 to 1);
            nonfinite_steps if there are any.
    """
    seconds = max(window.seconds, 1e-9)
    shares: list[Window] = collectives.gather_objects(window)
    warn_of_unlike_orders([share.sums.get(READ, 0.0) for share in shares], "train_dataset")
    recorded = Window()
    for share in shares:
        recorded.record(share.recorded)
    found = beside(OWN_COLUMNS, {name: total / count for name, (total, count) in recorded.recorded.items()})
    found["samples_per_second"] = round(sum(share.sums.get("samples", 0.0) for share in shares) / seconds, 3)
    found["steps_per_second"] = round(window.num_updates / seconds, 3)
    if tokens is not None:
        found["tokens_per_second"] = round(tokens / seconds, 3)
    found["data_wait_share"] = round(min(1.0, max(share.sums.get(WAITED, 0.0) for share in shares) / seconds), 4)
    nonfinite = int(window.sums.get("left_out", 0)) + len({each for share in shares for each in share.nonfinite})
    return found | ({"nonfinite_steps": nonfinite} if nonfinite else {})
