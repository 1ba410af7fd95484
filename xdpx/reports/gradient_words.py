"""Describe in words where gradients vanish, explode or are dead, from their sizes over time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log10
from statistics import median

Sizes = Mapping[str, tuple[float, float, float]]
"""Weight name -> (mean, largest absolute gradient, share of exact zeros), in the order of the model."""

LOOKS = 3
"""Samples that must agree before a problem is reported: a single odd batch is not one."""
LAYERS = 3
"""Layers that a stack needs for one of them to be compared with the others."""
VANISHING = 1e-5
"""The mean gradient of the first layer of a stack divided by that of the last: between 0.05 and 20 for a BERT or GPT
that learns, 1e-8 for a deep sigmoid network."""
EXPLODING = 1e3
"""The mean gradient of a layer divided by that of the next layer, or by the median of the others of its stack."""
GROWING = 1e3
"""The mean gradient of the whole model divided by its own earlier median."""
LOOKS_BEFORE = 5
"""Number of earlier samples that this median needs at least."""

NUMBERED = re.compile(r"^(?P<stack>(?:.*?[./_])?)(?P<index>\d+)(?=[./])")


@dataclass(frozen=True)
class Trouble:
    """A problem with the gradients of a model.

    Attributes:
        kind: vanishing, exploding, growing or dead.
        where: the layer, stack or weight.
        words: a sentence or two on it, with what to do.
    """

    kind: str
    where: str
    words: str


def troubles(history: Sequence[Sizes]) -> list[Trouble]:
    """Return the problems found in each of the last `LOOKS` samples; [] if there are none or too few samples.

    Args:
        history: the sizes of each sample, oldest first.
    """
    if len(history) < LOOKS:
        return []
    last = history[-LOOKS:]
    found = _dead(last)
    dead = {trouble.where for trouble in found}
    for stack, layers in _stacks(last[0]).items():
        if len(layers) >= LAYERS:
            found += _in_stack(stack, layers, last, dead)
    return found + _growing(history)


def _dead(last: Sequence[Sizes]) -> list[Trouble]:
    """Report each layer, or weight outside of a stack, whose gradients were all exactly 0 in every sample."""
    names = [name for name in last[0] if all(name in sizes and sizes[name][1] == 0.0 for sizes in last)]
    if len(names) == len(last[0]):
        return [Trouble("dead", "model", "every gradient is exactly 0: is the loss detached from the model?")]
    groups: dict[str, list[str]] = {}
    for name in last[0]:
        groups.setdefault(layer_of(name), []).append(name)
    found = []
    for layer, members in groups.items():
        dead = [name for name in members if name in names]
        if len(dead) == len(members):
            what = f"layer '{layer}' is dead: all of its {len(dead)} gradients were 0 in the last {len(last)} looks"
            why = "its units never activate, or the loss does not depend on it"
            found.append(Trouble("dead", layer, f"{what}: {why}. Lower learning_rate, or leave it out."))
        else:
            found += [
                Trouble("dead", name, f"weight '{name}' is dead: its gradient was 0 in the last {len(last)} looks.")
                for name in dead
            ]
    return found


def _in_stack(stack: str, layers: Mapping[str, list[str]], last: Sequence[Sizes], dead: set[str]) -> list[Trouble]:
    """Compare the layers of one stack, from first to last."""
    alive = [layer for layer in layers if layer not in dead]
    if len(alive) < LAYERS:
        return []
    looks = [{layer: _mean_of(sizes, layers[layer]) for layer in alive} for sizes in last]
    ratios = [each[alive[0]] / max(each[alive[-1]], 1e-300) for each in looks]
    if all(ratio < VANISHING for ratio in ratios):
        power = f"10^{log10(max(ratios[-1], 1e-300)):.0f}"
        words = (
            f"gradients vanish in '{stack}': those of '{alive[0]}' are {power} of those of '{alive[-1]}'. Add "
            "residual connections or normalisation, or use another activation or initialisation."
        )
        return [Trouble("vanishing", stack, words)]
    offenders = [
        layer for layer, after in zip(alive, [*alive[1:], None], strict=True) if _explodes(layer, after, looks)
    ]
    if not offenders:
        return []
    layer = offenders[-1]  # gradients flow back from the last layer, so earlier layers inherit the explosion
    usual = median(looks[-1][other] for other in alive[alive.index(layer) + 1 :] or alive[:-1])
    words = (
        f"gradients explode in layer '{layer}': {looks[-1][layer] / max(usual, 1e-300):.3g} times those of the "
        f"neighbouring layers in "
        f"'{stack}'. Check its initialisation and scale, lower learning_rate, or clip gradients "
        "more (clip_norm; max_grad_norm of a Trainer)."
    )
    return [Trouble("exploding", layer, words)]


def _explodes(layer: str, after: str | None, looks: Sequence[Mapping[str, float]]) -> bool:
    """Return whether the gradient of a layer is far above that of the next layer or the others, in every sample."""
    return all(
        (after is not None and look[layer] > EXPLODING * look[after])
        or look[layer] > EXPLODING * median(size for other, size in look.items() if other != layer)
        for look in looks
    )


def _growing(history: Sequence[Sizes]) -> list[Trouble]:
    """Report if the gradients of the whole model have grown far beyond their usual size."""
    if len(history) < LOOKS_BEFORE + LOOKS:
        return []
    wholes = [_mean_of(sizes, list(sizes)) for sizes in history]
    usual = median(wholes[:-LOOKS])
    if usual > 0 and all(whole > GROWING * usual for whole in wholes[-LOOKS:]):
        words = (
            f"gradients explode: {wholes[-1] / usual:,.0f} times their usual size in the last {LOOKS} looks. Lower "
            "learning_rate, lengthen the warm-up, or clip gradients more (clip_norm; max_grad_norm of a "
            "Trainer)."
        )
        return [Trouble("growing", "model", words)]
    return []


def layer_of(name: str) -> str:
    """Return the layer of a stack that a weight belongs to (`encoder.layer.3`); outside of stacks, its module."""
    found = NUMBERED.match(name)
    return found[0] if found else re.split(r"[./](?=[^./]*$)", name)[0]


def by_layer(sizes: Sizes) -> dict[str, float]:
    """Return the mean absolute gradient of each layer, in the order of the model."""
    groups: dict[str, list[str]] = {}
    for name in sizes:
        groups.setdefault(layer_of(name), []).append(name)
    return {layer: _mean_of(sizes, names) for layer, names in groups.items()}


def _stacks(sizes: Sizes) -> dict[str, dict[str, list[str]]]:
    """Return stack -> layer -> weights, for the weights in numbered layers."""
    found: dict[str, dict[str, list[str]]] = {}
    for name in sizes:
        numbered = NUMBERED.match(name)
        if numbered:
            found.setdefault(numbered["stack"].rstrip("./_"), {}).setdefault(numbered[0], []).append(name)
    return found


def _mean_of(sizes: Sizes, names: Sequence[str]) -> float:
    """Return the average of the mean gradients of some weights."""
    return sum(sizes[name][0] for name in names if name in sizes) / max(1, len(names))
