"""What a Trainer knows of its updates since the last log: recorded numbers, speed, losses that were no numbers.

Whatever comes from the device stays there until `take`, which is called when something is logged.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from time import perf_counter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from xdpx.engines.pytorch import collectives
from xdpx.logger import log
from xdpx.reports.windows import Stopwatch

ENDING = "_loss"
"""How an output of a model ends that is logged beside the loss."""

KEPT_AT_MOST = 1024
"""Losses and norms that wait on the device to be looked at; then they become one vector of flags."""


class Share(NamedTuple):
    """What one process has seen since the last log."""

    sums: Mapping[str, tuple[float, int]]
    samples: int
    waited: float  # seconds, for data
    nonfinite: set[int]  # updates, counted from the last log


class LogWindow:
    """Gathers from update to update what a log tells of them all.

    Attributes:
        samples: of this process.
        waited: seconds that this process waited for data.
        skipped: updates since the last log that were left out, because something was not finite.
        true_sum: of the losses of this process where the log filters them; on the device.
        true_total: the same over all processes, up to the last log.
    """

    def __init__(self) -> None:
        self._sums: dict[str, tuple[Any, int]] = {}
        self._warned = False
        self._stopwatch = Stopwatch()
        self.begin(0)

    def begin(self, tokens: int) -> None:
        """Begin a stretch of training that stands at so many tokens. What was recorded before stays."""
        self._stopwatch.start()
        self._skipped_before = self.skipped = 0
        self.true_total = 0.0
        self._open(tokens)

    def _open(self, tokens: int) -> None:
        self._tokens = tokens
        self.samples, self.waited, self._steps = 0, 0.0, 0
        self._losses: list[Any] = []
        self._norms: list[Any] = []
        self._flags: list[Tensor] = []
        self._skipped_before += self.skipped
        self.skipped = 0
        self.true_sum: Any = 0.0

    @property
    def skipped_in_all(self) -> int:
        """The number of updates of this stretch that were left out."""
        return self._skipped_before + self.skipped

    def record(self, name: str, value: Any) -> None:
        """Take a number or a tensor with one element, which stays where it is."""
        value = value.detach() if isinstance(value, Tensor) else value
        total, count = self._sums.get(name, (0.0, 0))
        self._sums[name] = (total + value, count + 1)

    def note(self, outputs: Any) -> None:
        """Record each output of a model whose name ends in `_loss`; the mean of one with several elements."""
        if not isinstance(outputs, dict):
            return
        for name, value in outputs.items():
            if isinstance(name, str) and name.endswith(ENDING):
                if isinstance(value, Tensor) and value.numel() > 0:
                    self.record(name, value if value.dim() == 0 else value.detach().float().mean())
                elif isinstance(value, float | int):
                    self.record(name, value)

    def take_step(self, loss: Any, norm: Any) -> None:
        """Count an update, and keep its facts for later: whether they are finite is a question to the device."""
        self._losses.append(loss)
        self._norms.append(norm)
        if len(self._norms) >= KEPT_AT_MOST:
            self._settle(look=True)

    def filtered(self, loss: Tensor, sum_before: Tensor) -> Tensor:
        """Return a loss, or the mean of those before where it is not finite; nothing waits for the device.

        Args:
            loss: of the update that was taken last.
            sum_before: of the losses since the last log, filtered.
        """
        self.true_sum = self.true_sum + loss
        return torch.where(loss.isfinite(), loss, sum_before / (self._steps + len(self._norms)))

    def warn(self, what: str) -> None:
        """Say once, as soon as it is known, that training goes on although something is not finite."""
        if not self._warned:
            self._warned = True
            log.warning(
                f"{what}: training goes on, as that of the original does, but nothing good can come of it. Checkpoints "
                "say whether their weights are finite, and the newest that is stays. To leave such updates out, or to "
                "stop at them, set nonfinite_steps to 'skip' or 'raise'."
            )

    def resting(self) -> AbstractContextManager[None]:
        """Return a context for what is no training, such as evaluating: its time does not count."""
        return self._stopwatch.paused()

    def waiting(self, batches: Iterator[Any]) -> Generator[Any]:
        """Yield the same batches; the time in which each is waited for, and that alone, is waiting for data."""
        while True:
            asked = perf_counter()
            try:
                batch = next(batches)
            except StopIteration:
                return
            finally:
                self.waited += perf_counter() - asked
            yield batch

    def take(self, tokens: int | None, *, finite: bool) -> dict[str, float]:
        """Return what a log tells of the updates of all processes, and begin anew; on all processes.

        Args:
            tokens: seen so far on all processes; None where they are not counted.
            finite: whether the sum of the losses and the last norm are. Then all before are too, for a gradient that is
                not finite spoils weights, and with them the losses that follow.

        Returns:
            Means of what was recorded; samples_per_second, steps_per_second, tokens_per_second, data_wait_share (the
            largest among the processes, from 0 to 1); nonfinite_steps where there are some.
        """
        self._settle(look=not finite)
        seconds = max(self._stopwatch.lap(), 1e-9)
        steps, skipped, before = self._steps, self.skipped, self._tokens
        own = {name: (float(total), count) for name, (total, count) in self._sums.items()}
        shares = collectives.gather_objects(Share(own, self.samples, self.waited, self._nonfinite()))
        self._sums = {}
        self._open(0 if tokens is None else tokens)
        found = _means(share.sums for share in shares)
        found["samples_per_second"] = round(sum(share.samples for share in shares) / seconds, 3)
        found["steps_per_second"] = round(steps / seconds, 3)
        if tokens is not None:
            found["tokens_per_second"] = round((tokens - before) / seconds, 3)
        found["data_wait_share"] = round(min(1.0, max(share.waited for share in shares) / seconds), 4)
        nonfinite = skipped + len(set().union(*(share.nonfinite for share in shares)))
        return found | ({"nonfinite_steps": nonfinite} if nonfinite else {})

    def _settle(self, *, look: bool) -> None:
        """Turn the facts that are kept into flags, true where one is not finite; nothing is waited for."""
        self._steps += len(self._norms)
        if look and self._norms:
            norms, losses = _vector(self._norms), _vector(self._losses)
            self._flags.append(~(norms.isfinite() & losses.to(norms.device).isfinite()))
        self._losses, self._norms = [], []

    def _nonfinite(self) -> set[int]:
        return set(torch.cat(self._flags).nonzero().flatten().tolist()) if self._flags else set()


def _vector(values: list[Any]) -> Tensor:
    if not all(isinstance(value, Tensor) for value in values):
        values = [torch.as_tensor(value) for value in values]
    return torch.stack(values).detach()


def _means(all_sums: Iterable[Mapping[str, tuple[float, int]]]) -> dict[str, float]:
    """Return the mean of each number over all processes, which may have recorded different ones."""
    sums: dict[str, tuple[float, int]] = {}
    for known in all_sums:
        for name, (total, count) in known.items():
            before = sums.get(name, (0.0, 0))
            sums[name] = (before[0] + total, before[1] + count)
    return {name: total / count for name, (total, count) in sums.items()}
