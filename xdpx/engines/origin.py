"""Where NaN or infinity first appeared: what an engine finds when it runs an update again, and how to report it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

Phase = Literal["batch", "weights", "forward", "loss", "backward", "sum"]
"""Where it was found: in the batch, in the weights before the update, in the forward pass, the loss or the backward
pass, or in a sum of gradients that are finite one by one."""

ROWS_SHOWN = 8
LARGE = 1e4
"""Finite values beyond this are close to overflow in fp16, and rarely intended in float32."""


class NonFiniteUpdate(FloatingPointError):
    """Raised to end training because the loss or the gradient of an update is NaN or infinite.

    Args:
        message: what is wrong, and what to do.
        number: of the update.
    """

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number


@dataclass(frozen=True)
class TensorFacts:
    """Summary of the values of a tensor.

    Attributes:
        name: its role in its module: `output`, `input 0`, `weight`.
        dtype: of its values.
        shape: of the tensor.
        nan, inf, negative_inf: number of values of each kind.
        smallest, largest: of the finite values; NaN if there are none.
        rows: indices in the first dimension with a value that is NaN or infinite.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nan: int = 0
    inf: int = 0
    negative_inf: int = 0
    smallest: float = 0.0
    largest: float = 0.0
    rows: tuple[int, ...] = ()

    @property
    def is_bad(self) -> bool:
        """Whether it holds NaN or positive infinity. Negative infinity alone is not a fault: attention masks use it."""
        return bool(self.nan or self.inf)

    @property
    def size(self) -> float:
        """The largest absolute value among the finite ones, 0 if there are none."""
        return max(abs(self.smallest), abs(self.largest)) if self.smallest == self.smallest else 0.0

    def words(self) -> str:
        """Return a description in one line."""
        counts = {"NaN": self.nan, "inf": self.inf, "-inf": self.negative_inf}
        bad = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "all finite"
        total = 1
        for size in self.shape:
            total *= size
        some = self.nan + self.inf + self.negative_inf
        rest = "none is finite" if some >= total else f"finite ones from {self.smallest:.4g} to {self.largest:.4g}"
        where = "all finite" if not some else f"{bad} of {total:,}"
        return f"{self.name}: {self.dtype}{list(self.shape)}, {where}, {rest}"


@dataclass(frozen=True)
class NonFiniteOrigin:
    """The first place where a value was NaN or infinite.

    Attributes:
        phase: at which point of the update.
        name: of the module, weight or entry of the batch.
        kind: class of the module.
        made: the tensors that were produced there, at least one of them with NaN or infinity.
        given: the tensors they were computed from.
        weights: those of the module.
        notes: further findings, one line each.
        micro_batch: its index in the update.
        rows: of the micro-batch that are affected; empty if they are not known.
        ids: of the samples in those rows, or of all samples if `rows` is empty; empty if samples have no ids.
    """

    phase: Phase
    name: str
    kind: str = ""
    made: Sequence[TensorFacts] = ()
    given: Sequence[TensorFacts] = ()
    weights: Sequence[TensorFacts] = ()
    notes: Sequence[str] = ()
    micro_batch: int = 0
    rows: Sequence[int] = ()
    ids: Sequence[object] = field(default=())

    def headline(self) -> str:
        """Return the place in one sentence."""
        what = " and ".join(
            name
            for name, there in (("NaN", any(f.nan for f in self.made)), ("inf", any(f.inf for f in self.made)))
            if there
        )
        what = what or "-inf"
        module = f"'{self.name}'" + (f" ({self.kind})" if self.kind else "")
        return {
            "batch": f"the batch itself has {what}, in {module}",
            "weights": f"weight {module} has {what} before the update",
            "forward": f"forward: {module} is the first module that gives {what}",
            "loss": f"forward: every module gives finite numbers, and the loss is {what}",
            "backward": f"backward: {module} is the first module that gives {what} as a gradient",
            "sum": f"gradients are finite one by one, and {what} when they are summed; {module} has the largest",
        }[self.phase]

    def lines(self) -> list[str]:
        """Return everything that is known, and what to do, as lines of text."""
        found = [self.headline(), *self.notes]
        found += [f"  gives {facts.words()}" for facts in self.made]
        found += [f"  given {facts.words()}" for facts in self.given]
        found += [f"  weight {facts.words()}" for facts in self.weights]
        if self.rows:
            shown, more = list(self.rows[:ROWS_SHOWN]), len(self.rows) - ROWS_SHOWN
            beyond = f" and {more} more" if more > 0 else ""
            found.append(f"rows {', '.join(map(str, shown))}{beyond} of micro-batch {self.micro_batch}")
        if self.ids:
            found.append(f"sample ids {', '.join(map(str, self.ids[:ROWS_SHOWN]))}")
        return [*found, f"what to do: {self.advice()}"]

    def advice(self) -> str:
        """Return what most likely helps."""
        if self.phase == "batch":
            return "fix these samples, or what encodes them."
        if self.phase == "weights":
            return (
                "the weights were broken before: continue from an older checkpoint, with a lower learning_rate or a "
                "longer warm-up, and nonfinite_steps other than 'keep'."
            )
        if any("float16" in facts.dtype and "bfloat16" not in facts.dtype for facts in self.made):
            return "it was computed in float16, which ends at 65,504: use bf16 or fp32, or a lower learning_rate."
        if any(facts.negative_inf for facts in self.given):
            return "its input has -inf, as from a mask: a row where everything is masked has no softmax."
        if any(facts.size > LARGE for facts in self.weights):
            return (
                "its weights have grown out of bounds: lower learning_rate, lengthen the warm-up, or clip gradients "
                "more (clip_norm; max_grad_norm of a Trainer)."
            )
        if any(facts.size > LARGE for facts in self.given):
            return "its input has grown out of bounds: normalise it, lower learning_rate, or lengthen the warm-up."
        if self.phase == "loss":
            return "look at the targets of this batch: a logarithm of 0, a division by 0, a class that does not exist."
        if self.phase == "backward":
            return (
                "its output is finite, but its slope is not: look for sqrt, norm, pow or log at 0, and for a division "
                "by a difference that is 0; add a small epsilon."
            )
        if self.phase == "sum":
            return "lower learning_rate or the loss, because gradients of this size cannot be summed in float32."
        return "look at these samples, and for a division, logarithm or root of 0 in this module."


def with_ids(origin: NonFiniteOrigin, ids: Sequence[object] | None) -> NonFiniteOrigin:
    """Return the origin with the ids of the samples in its rows, or of all samples if its rows are not known."""
    if ids is None:
        return origin
    rows = origin.rows if origin.rows else range(len(ids))
    return replace(origin, ids=[ids[row] for row in rows if row < len(ids)])


def in_rows(made: Sequence[TensorFacts], num_rows: int) -> tuple[int, ...]:
    """Return the rows of a batch where one of the tensors is NaN or infinite; () if none has a row for each sample.

    Tensors with -inf but neither NaN nor inf count only if there are no others: masks contain -inf.
    """
    bad = [facts for facts in made if facts.is_bad] or made
    found = {row for facts in bad if facts.shape and facts.shape[0] == num_rows for row in facts.rows}
    return tuple(sorted(found))


def ids_of(batch: Mapping[str, object]) -> list[object] | None:
    """Return the sample ids of a batch, None if it has none."""
    ids = batch.get("id")
    try:
        return None if ids is None else [int(each) for each in ids]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        return [str(each) for each in ids] if isinstance(ids, list | tuple) else None
