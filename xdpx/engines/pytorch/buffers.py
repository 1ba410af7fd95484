"""The buffers of a model, such as running means: equal on all processes, and in the copy with averaged weights."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn

from xdpx.engines.pytorch import collectives

Marks = list[tuple[Tensor | None, int]]


class Buffers:
    """The buffers of a model, looked up again each time: a model may replace them (`self.seen = self.seen + 1`)."""

    def __init__(self, model: nn.Module) -> None:
        self._holders = [module._buffers for module in model.modules() if module._buffers]
        self._known = [_marks(held) for held in self._holders]

    def changed(self) -> list[bool]:
        """Return for each module with buffers whether it has changed one since the last `share`; reads no values.

        Not for each buffer: of those of a BatchNorm, torch counts only the changes of `num_batches_tracked`.
        """
        return [_differ(_marks(held), known) for held, known in zip(self._holders, self._known, strict=True)]

    def share(self, which: Iterable[object] | None = None) -> None:
        """Copy buffers of the first process to all. On all processes.

        Args:
            which: for each module with buffers whether to copy them, the same on all processes; None copies all.
        """
        chosen = self._holders if which is None else which
        for index, (held, wanted) in enumerate(zip(self._holders, chosen, strict=True)):
            for name, buffer in held.items() if wanted else ():
                if buffer is not None:
                    held[name] = collectives.broadcast_tensor_(buffer.clone() if buffer.is_inference() else buffer)
            self._known[index] = _marks(held)

    def take_from(self, other: Buffers) -> None:
        """Copy the buffers of another model of the same kind."""
        for mine, theirs in zip(self._holders, other._holders, strict=True):
            for name, new in theirs.items():
                own = mine[name]
                if own is None or new is None or own.shape != new.shape or own.is_inference():
                    mine[name] = None if new is None else new.detach().clone()
                else:
                    own.copy_(new)


def _marks(held: dict[str, Tensor | None]) -> Marks:
    """Return each buffer with the number of times its values were changed."""
    return [(each, 0 if each is None or each.is_inference() else each._version) for each in held.values()]


def _differ(now: Marks, before: Marks) -> bool:
    pairs = zip(now, before, strict=True)
    return any(new is not old or version != known for (new, version), (old, known) in pairs)
