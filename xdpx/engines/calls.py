"""The calls of a model's modules in one forward and backward pass, and which of them first produced NaN or infinity."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from xdpx.engines.origin import NonFiniteOrigin, Phase, TensorFacts


@dataclass(eq=False)
class Call:
    """One call of a module.

    Attributes:
        name: of the module.
        kind: its class.
        parent: the call inside which it was made; None for the model itself.
        given, made: facts of its inputs and outputs.
        into: facts of the gradients of its outputs, which the backward pass brings to it.
        out_of: facts of the gradients of its inputs and weights, which it computes from those.
        inputs: identities of its inputs, to find other calls with the same ones.
        first_bad: when its first non-finite gradient came, in any increasing count; None if all are finite.
        weight_is_bad: whether the gradient of one of its weights is not finite.
        weights: facts of its weights.
    """

    name: str
    kind: str
    parent: Call | None = None
    given: list[TensorFacts] = field(default_factory=list)
    made: list[TensorFacts] = field(default_factory=list)
    into: list[TensorFacts] = field(default_factory=list)
    out_of: list[TensorFacts] = field(default_factory=list)
    inputs: set[int] = field(default_factory=set)
    first_bad: int | None = None
    weight_is_bad: bool = False
    weights: list[TensorFacts] = field(default_factory=list)

    def is_inside(self, other: Call) -> bool:
        """Return whether it was made inside another call."""
        above = self.parent
        while above is not None and above is not other:
            above = above.parent
        return above is other

    def gives(self, gradient: TensorFacts, moment: int, *, to_weight: bool = False) -> None:
        """Record the gradient of one of its inputs or weights."""
        self.out_of.append(gradient)
        if gradient.is_bad or gradient.negative_inf:
            self.first_bad = moment if self.first_bad is None else self.first_bad
            self.weight_is_bad |= to_weight

    def origin(self, phase: Phase, made: Sequence[TensorFacts], notes: Sequence[str]) -> NonFiniteOrigin:
        """Return this call as the place where NaN or infinity first appeared."""
        came = self.into if phase == "backward" else []
        given = [*self.given, *came]
        return NonFiniteOrigin(phase, self.name, self.kind, made=made, given=given, weights=self.weights, notes=notes)


def first_of(begun: Sequence[Call], ended: Sequence[Call], losses: Sequence[TensorFacts]) -> NonFiniteOrigin | None:
    """Return what first produced NaN or infinity, None if everything was finite.

    Args:
        begun: all calls, in the order in which they began.
        ended: the same calls in the order in which they ended: inner ones before outer ones.
        losses: facts of the losses.
    """
    return _forward(begun, ended) or _loss(begun, ended, losses) or _backward(begun, ended)


def _forward(begun: Sequence[Call], ended: Sequence[Call]) -> NonFiniteOrigin | None:
    """Return the first, innermost module with inputs that are finite, or -inf as in masks, and bad outputs."""
    made = [
        call
        for call in ended
        if any(facts.is_bad for facts in call.made) and not any(facts.is_bad for facts in call.given)
    ]
    call = next((call for call in made if not any(each.is_inside(call) for each in made)), None)
    if call is None:
        return None
    before = ended[: ended.index(call)]
    masks = next((each for each in before if any(facts.negative_inf for facts in each.made)), None)
    notes = _between(call, begun)
    notes += [] if masks is None else [f"before it, '{masks.name}' gave -inf: a mask, or a logarithm of 0"]
    return call.origin("forward", call.made, notes)


def _between(call: Call, begun: Sequence[Call]) -> list[str]:
    """Return a note on where in the module's own code it happened: between which of its submodules."""
    parts = [each for each in begun if each.parent is call]
    for before, part in zip([None, *parts], parts, strict=False):
        if any(facts.is_bad for facts in part.given):
            after = f", after '{before.name}'" if before is not None else ""
            return [f"in its own code{after}, before it calls '{part.name}', whose input has it"]
    return [f"in its own code, after '{parts[-1].name}'"] if parts else []


def _loss(begun: Sequence[Call], ended: Sequence[Call], losses: Sequence[TensorFacts]) -> NonFiniteOrigin | None:
    """Return the loss, or, if the model's output already has -inf, the first module that produced it."""
    if not _are_bad(losses):
        return None
    whole = next((call for call in reversed(ended) if call.parent is None), None)
    if whole is not None and any(facts.negative_inf for facts in whole.made):
        made = [call for call in ended if _are_bad(call.made) and not _are_bad(call.given)]
        call = next((call for call in made if not any(each.is_inside(call) for each in made)), whole)
        note = "-inf is not a fault in a mask, but here it reaches the loss: "
        notes = [*_between(call, begun), note + "; ".join(facts.words() for facts in losses)]
        return call.origin("forward", call.made, notes)
    return NonFiniteOrigin("loss", "loss", made=losses, given=[] if whole is None else whole.made)


def _backward(begun: Sequence[Call], ended: Sequence[Call]) -> NonFiniteOrigin | None:
    """Return the innermost module that received finite gradients and produced non-finite ones."""
    parts = {id(call.parent): call for call in begun if call.parent is not None and _are_bad(call.into)}
    fine = [call for call in begun if call.into and not _are_bad(call.into)]
    bad = [call for call in fine if call.first_bad is not None or id(call) in parts]
    bad = [call for call in bad if call.weight_is_bad or id(call) in parts or not _is_anothers(call, begun)]
    inner = [call for call in bad if not any(each.is_inside(call) for each in bad)]
    if inner:
        call = min(inner, key=lambda each: each.first_bad or 0)
        part = parts.get(id(call))
        notes = [] if part is None else [f"in its own code, after '{part.name}', whose output it reaches"]
        gave = call.out_of if part is None else part.into
        return call.origin("backward", [each for each in gave if each.is_bad or each.negative_inf], notes)
    last = next((call for call in reversed(ended) if _are_bad(call.into)), None)
    if last is None:
        return None
    note = "the gradient that reaches its output is already not finite: something between it and the loss made it so"
    return last.origin("backward", [each for each in last.into if each.is_bad or each.negative_inf], [note])


def _is_anothers(call: Call, begun: Sequence[Call]) -> bool:
    """Return whether a bad gradient of its inputs can come from another module that has the same inputs."""
    return any(
        other.inputs & call.inputs and _are_bad(other.into)
        for other in begun
        if other is not call and not other.is_inside(call) and not call.is_inside(other)
    )


def _are_bad(facts: Iterable[TensorFacts]) -> bool:
    return any(each.is_bad or each.negative_inf for each in facts)
