"""The base class of losses for which labels are grades: more of something, such as relevance or similarity."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import Tensor

from xdpx.config import parameters as declare
from xdpx.config.faults import refusal
from xdpx.logger import log
from xdpx.losses.arithmetic import DeviceConstant
from xdpx.losses.base import Loss
from xdpx.losses.parameters import LossParameters
from xdpx.metrics.named import OF_GRADES
from xdpx.tokenizers.target_map import number_of


class Graded(Loss):
    """A loss that compares, or is scored by, the grades of labels."""

    class Parameters(LossParameters):
        """Keys of losses with graded labels."""

        label_values: list[float] | None = declare.param(
            None, doc="The grade that each label is, from meta.hjson (target_type: number); null: its class number."
        )

    parameters: Any

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        given = parameters.label_values
        self._label_values = None if given is None else DeviceConstant(given)

    @property
    def reads_grades(self) -> bool:
        """Whether grades matter in this run."""
        return True

    @property
    def reads_numbers(self) -> bool:
        """Whether grades are the numbers that labels are, not those of classes."""
        return self.reads_grades and self._label_values is not None

    def know_numbers(self, values: Sequence[float]) -> None:
        """Take the number of each label, those of training first."""
        self._label_values = DeviceConstant(values)

    def grades(self, target: Tensor, like: Tensor) -> Tensor:
        """Return the grades of classes (B,), on the device and in the dtype of another tensor."""
        return target.to(like.dtype) if self._label_values is None else self._label_values.like(like)[target]

    def refuse_labels(self, names: Sequence[str]) -> None:
        """Raise ConfigError if labels are numbers, but other ones than the grades they would count as."""
        if self._label_values is not None or not self.reads_grades:
            return
        refuse_other_grades(names)

    def refuse_grades(self, names: Iterable[str], labels: Sequence[str]) -> None:
        """Warn of grades with which metrics of queries mean little; none is refused."""
        del labels
        tell_of_odd_grades(names, self.parameters.label_values)


def refuse_other_grades(names: Sequence[str], *, metric: str = "") -> None:
    """Raise ConfigError if labels are numbers, but other ones than the grades they would count as; or tell of those.

    Args:
        names: of the labels, in the order of the classes.
        metric: the one that reads grades, as they are; '' if only their order has to be that of the labels.
    """
    values = [number_of(name) for name in names]
    if values == list(range(len(names))):
        return
    reader = f" in {metric}" if metric else ""
    shown = ", ".join(f"'{name}' counts as {number}" for number, name in enumerate(names[:10]))
    problem = f"null, so{reader} a label's grade is the number of its class: {shown}"
    numbers = [value for value in values if value is not None]
    if len(numbers) == len(values) and (metric or numbers != sorted(numbers)):
        written = f"Set label_values: {numbers}, or preprocess" if len(numbers) <= 10 else "Preprocess"
        raise refusal("label_values", f"is {problem}.", f"{written} with target_type: number.")
    (log.warning if metric else log.info)(f"label_values: {problem}", once=True)


def tell_of_odd_grades(metrics: Iterable[str], grades: Sequence[float] | None) -> None:
    """Warn of grades that are all above 0, with which all candidates are relevant, and of gains below 0.

    Args:
        metrics: their names; only those of queries are looked at.
        grades: of the labels; None if they are the numbers of classes, which begin with 0.
    """
    if not grades:
        return
    found = sorted(filter(OF_GRADES.fullmatch, set(metrics)))
    lowest, gains = min(grades), [name for name in found if name.startswith("ndcg")]
    relevance = [name for name in found if name not in gains]
    if lowest > 0 and relevance:
        log.warning(
            f"{', '.join(relevance)}: labels are grades from {lowest:g} on, and grades above 0 are relevant: with "
            "every candidate relevant, these are 1 whatever the order. Use ndcg, also as major_metric; or label "
            "what is irrelevant 0.",
            once=True,
        )
    if lowest < 0 and gains:
        log.warning(
            f"{', '.join(gains)}: some labels are grades below 0 (down to {lowest:g}), which are negative gains: "
            "scores may be below 0, and queries without a grade above 0 are left out. Label what is irrelevant 0.",
            once=True,
        )
