"""Where a NaN or an infinite number came from: what an engine finds when it takes an update again, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

Phase = Literal["batch", "weights", "forward", "loss", "backward", "sum"]
"""What was looked at: numbers that came with the batch, weights before the update, the two passes, the loss between
them, and gradients that are finite until they are added up."""

ROWS_SHOWN = 8
LARGE = 1e4
"""Finite numbers beyond this are about to overflow in fp16, and are rarely meant in float32."""


class NonFiniteUpdate(FloatingPointError):
    """Training ends, because the loss or the gradient of an update is NaN or infinite.

    Args:
        message: what is wrong, and what to do.
        number: of the update.
    """

    def __init__(self, message: str, number: int) -> None:
        super().__init__(message)
        self.number = number


@dataclass(frozen=True)
class TensorFacts:
    """What a tensor holds.

    Attributes:
        name: what it is to its module: `output`, `input 0`, `weight`.
        dtype: of its numbers.
        shape: of the tensor.
        nan, inf, negative_inf: how many of its numbers are each.
        smallest, largest: of those that are finite; NaN where none is.
        rows: indices in the first dimension where a number is NaN or infinite.
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
        """Whether it holds NaN or infinity. Minus infinity alone is how attention is masked, and no fault."""
        return bool(self.nan or self.inf)

    @property
    def size(self) -> float:
        """The largest absolute value among those that are finite."""
        return max(abs(self.smallest), abs(self.largest)) if self.smallest == self.smallest else 0.0

    def words(self) -> str:
        """Say it in one line."""
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
class Origin:
    """The first place where a number was NaN or infinite.

    Attributes:
        phase: when.
        name: of the module, weight or entry of the batch.
        kind: class of the module.
        made: what is NaN or infinite.
        given: what it was made from.
        weights: those of the module.
        notes: more sentences.
        micro_batch: its index in the update.
        rows: of the micro-batch that are touched; empty where that cannot be told.
        ids: of the samples in those rows; empty where they have none.
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
        """Name the place in one sentence."""
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
            "sum": f"gradients are finite one by one, and {what} when they are added up; {module} has the largest",
        }[self.phase]

    def lines(self) -> list[str]:
        """Say everything that is known, and what to do."""
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
        """Say what most likely helps."""
        if self.phase == "batch":
            return "mend these samples, or what makes numbers of them."
        if self.phase == "weights":
            return (
                "the weights were broken before: go on from an older checkpoint, with a lower learning_rate or a "
                "longer warm-up, and nonfinite_steps other than 'keep'."
            )
        if any("float16" in facts.dtype and "bfloat16" not in facts.dtype for facts in self.made):
            return "it was computed in float16, which ends at 65,504: use bf16 or fp32, or a lower learning_rate."
        if any(facts.negative_inf for facts in self.given):
            return "it was given -inf, as masks have it: a row where everything is masked has no softmax."
        if any(facts.size > LARGE for facts in self.weights):
            return "its weights have grown out of bounds: lower learning_rate, lengthen the warm-up, or set clip_norm."
        if any(facts.size > LARGE for facts in self.given):
            return (
                "what it was given has grown out of bounds: normalise it, lower learning_rate, or lengthen the warm-up."
            )
        if self.phase == "loss":
            return "look at the targets of this batch: a logarithm of 0, a division by 0, a class that does not exist."
        if self.phase == "backward":
            return (
                "its output is finite, but its slope is not: look for sqrt, norm, pow or log at 0, and for a division "
                "by a difference that is 0; add a small epsilon."
            )
        if self.phase == "sum":
            return "lower learning_rate or the loss, for gradients of this size cannot be added up in float32."
        return "look at these samples, and for a division, logarithm or root of 0 in this module."


def with_ids(origin: Origin, ids: Sequence[object] | None) -> Origin:
    """Return an origin that names the samples in its rows."""
    if ids is None:
        return origin
    rows = origin.rows if origin.rows else range(len(ids))
    return replace(origin, ids=[ids[row] for row in rows if row < len(ids)])


def in_rows(made: Sequence[TensorFacts], num_rows: int) -> tuple[int, ...]:
    """Return the rows of a batch where one of some tensors is NaN or infinite; () where none of them has such rows.

    Rows of -inf count only where nothing else is found: masks have it.
    """
    bad = [facts for facts in made if facts.is_bad] or made
    found = {row for facts in bad if facts.shape and facts.shape[0] == num_rows for row in facts.rows}
    return tuple(sorted(found))


def ids_of(batch: Mapping[str, object]) -> list[object] | None:
    """Return the sample ids that a batch carries, None where it has none."""
    ids = batch.get("id")
    try:
        return None if ids is None else [int(each) for each in ids]  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        return [str(each) for each in ids] if isinstance(ids, list | tuple) else None
