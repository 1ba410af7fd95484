"""Run the passes of an update again with a probe around every layer, to find what first produced NaN or infinity.

A probe is an identity function that reports the values passing through it to the host, forward and backward. It works
inside scans and remat, so the layers of a repeated stack are told apart. It is compiled only when it is needed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jax.sharding import PartitionSpec

from xdpx.engines.calls import Call, first_of
from xdpx.engines.origin import NonFiniteOrigin, TensorFacts, in_rows
from xdpx.engines.spmd import transfer
from xdpx.engines.spmd.partitioning import path_name
from xdpx.engines.spmd.state import SpmdState

Pass = Callable[[Any, Any, Any, Any], tuple[Any, Any, Any]]
"""From (weights, non-trainable variables, batch, key) to (loss, gradients, non-trainable variables)."""

GIVEN, MADE, INTO, OUT_OF = "given", "made", "into", "out of"


@dataclass
class _Site:
    """A layer in the program; it may run several times, and each run is a call.

    Attributes:
        name, kind: of the layer.
        parent: the site that it is called in, None for the model.
        end: how many sites had ended before it, in the order of the program.
        heard: what probes reported, by side and index of the array: one entry per run.
    """

    name: str
    kind: str
    parent: _Site | None
    end: int = 0
    heard: dict[str, dict[int, list[TensorFacts]]] = field(default_factory=dict)
    moments: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def num_runs(self, side: str) -> int:
        """Return how often the probes of one side were passed."""
        return max((len(runs) for runs in self.heard.get(side, {}).values()), default=0)

    def run(self, side: str, index: int) -> list[TensorFacts]:
        """Return what the probes of one side reported for one run."""
        return [runs[index] for runs in self.heard.get(side, {}).values() if len(runs) > index]


def origin_of(state: SpmdState, group: Sequence[Any], keys: Sequence[Any], one_pass: Pass) -> NonFiniteOrigin | None:
    """Return where NaN or infinity first appears in an update; None if everything is finite.

    Args:
        state: with the weights before the update; nothing of it is donated.
        group: micro-batches, on the devices.
        keys: the random key of each.
        one_pass: forward and backward on one of them.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(state["params"]):
        facts = facts_of(path_name(path), leaf)
        if facts.is_bad or facts.negative_inf:
            return NonFiniteOrigin("weights", facts.name, made=[facts])
    non_trainable = state["non_trainable"]
    for index, (batch, key) in enumerate(zip(group, keys, strict=True)):
        for path, leaf in jax.tree_util.tree_leaves_with_path(batch):
            facts = facts_of(path_name(path), leaf)
            if facts.is_bad:
                return NonFiniteOrigin("batch", facts.name, made=[facts], micro_batch=index, rows=facts.rows)
        listening = _Listening()
        with nn.intercept_methods(listening.intercept):
            loss, grads, non_trainable = jax.jit(one_pass)(state["params"], non_trainable, batch, key)
        jax.block_until_ready(grads)
        jax.effects_barrier()
        found = listening.origin(loss, grads, state["params"])
        if found is not None:
            rows = next((leaf.shape[0] for leaf in jax.tree.leaves(batch) if leaf.ndim), 0)
            return replace(found, micro_batch=index, rows=in_rows([*found.made, *found.given], rows))
    return None


def facts_of(name: str, array: Any) -> TensorFacts:
    """Return the facts of an array. Waits for the devices."""
    kind, shape = str(array.dtype), tuple(array.shape)
    if not jnp.issubdtype(array.dtype, jnp.floating) or not array.size:
        return TensorFacts(name, kind, shape)
    numbers, rows = jax.tree.map(transfer.array_to_host, _counted(array))
    return _facts(name, kind, shape, np.asarray(numbers), np.asarray(rows))


def _facts(name: str, kind: str, shape: tuple[int, ...], numbers: Any, rows: Any) -> TensorFacts:
    nan, inf, negative = (int(each) for each in numbers[:3])
    finite = nan + inf + negative < int(np.prod(shape))
    smallest, largest = (float(each) for each in numbers[3:]) if finite else (float("nan"), float("nan"))
    touched = tuple(np.flatnonzero(rows).tolist()) if nan + inf + negative else ()
    return TensorFacts(name, kind, shape, nan, inf, negative, smallest, largest, touched)


@jax.jit
def _counted(array: Any) -> tuple[Any, Any]:
    """Return ([NaN, inf, -inf, smallest, largest finite], which rows have NaN or infinity)."""
    values = array.astype(jnp.float32)
    finite = jnp.isfinite(array)
    numbers = jnp.stack([
        jnp.isnan(array).sum(), jnp.isposinf(array).sum(), jnp.isneginf(array).sum(),
        jnp.where(finite, values, jnp.inf).min(), jnp.where(finite, values, -jnp.inf).max(),
    ])  # fmt: skip
    return numbers, ~finite.reshape(array.shape[0], -1).all(axis=1) if array.ndim else ~finite.reshape(1)


def _everywhere(numbers: tuple[Any, Any]) -> Any:
    """Replicate numbers on every device, because only one of them calls the host."""
    mesh = jax.sharding.get_abstract_mesh()
    return numbers if mesh.empty else jax.lax.with_sharding_constraint(numbers, PartitionSpec())


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _probe(array: Any, forward: Callable[..., None], backward: Callable[..., None]) -> Any:
    jax.debug.callback(forward, *_everywhere(_counted(array)))
    return array


def _probe_forward(array: Any, forward: Callable[..., None], backward: Callable[..., None]) -> tuple[Any, None]:
    jax.debug.callback(forward, *_everywhere(_counted(array)))
    return array, None


def _probe_backward(forward: Callable[..., None], backward: Callable[..., None], kept: None, grad: Any) -> tuple[Any]:
    jax.debug.callback(backward, *_everywhere(_counted(grad)))
    return (grad,)


_probe.defvjp(_probe_forward, _probe_backward)


class _Listening:
    """Puts probes around the layers of a program while it is traced, and records their reports when it runs."""

    def __init__(self) -> None:
        self._sites: list[_Site] = []
        self._open: list[_Site] = []
        self._num_ended = 0
        self._moment = 0

    def intercept(self, call: Callable[..., Any], values: Any, named: Any, context: Any) -> Any:
        """Call a method of a layer with probes around it, if it is the one that computes."""
        if context.method_name != "__call__":
            return call(*values, **named)
        site = self._site("/".join(context.module.path), type(context.module).__name__)
        self._open.append(site)
        try:
            values, named = self._probed(site, (values, named), GIVEN, OUT_OF)
            output = call(*values, **named)
        finally:
            self._open.pop()
        site.end, self._num_ended = self._num_ended, self._num_ended + 1
        return self._probed(site, output, MADE, INTO)

    def _site(self, name: str, kind: str) -> _Site:
        """Return a new site; a program that is traced a second time (scan, remat) has the same ones."""
        parent = self._open[-1] if self._open else None
        site = _Site(name or kind, kind, parent)
        self._sites.append(site)
        return site

    def _probed(self, site: _Site, tree: Any, forward: str, backward: str) -> Any:
        leaves, structure = jax.tree.flatten(tree)
        probed = [
            self._one(site, index, leaf, forward, backward)
            if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.size
            else leaf
            for index, leaf in enumerate(leaves)
        ]
        return jax.tree.unflatten(structure, probed)

    def _one(self, site: _Site, index: int, leaf: Any, forward: str, backward: str) -> Any:
        kind, shape = str(leaf.dtype), tuple(leaf.shape)
        words = {GIVEN: "input", MADE: "output", INTO: "gradient of its output", OUT_OF: "gradient of its input"}

        def heard(side: str, numbers: Any, rows: Any) -> None:
            self._moment += 1
            facts = _facts(f"{words[side]} {index}", kind, shape, np.asarray(numbers), np.asarray(rows))
            runs = site.heard.setdefault(side, {}).setdefault(index, [])
            runs.append(facts)
            if side == OUT_OF:
                site.moments[len(runs) - 1].append(self._moment)

        return _probe(leaf, partial(heard, forward), partial(heard, backward))

    def origin(self, loss: Any, grads: Any, params: Any) -> NonFiniteOrigin | None:
        """Return what first produced NaN or infinity, None if everything was finite."""
        calls = self._calls(grads)
        ended = [call for _, _, call in sorted(calls, key=lambda each: (each[1], each[0].end))]
        begun = [call for _, _, call in calls]
        found = first_of(begun, ended, [facts_of("loss", loss)])
        if found is None:
            bad = [facts_of(path_name(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(grads)]
            bad = [facts for facts in bad if facts.is_bad or facts.negative_inf]
            return NonFiniteOrigin("backward", bad[0].name, made=bad[:1]) if bad else None
        name = found.name.split(" (run ")[0]
        weights = [
            facts_of(path_name(path), leaf)
            for path, leaf in jax.tree_util.tree_leaves_with_path(params)
            if path_name(path).rpartition("/")[0] == name
        ]
        return replace(found, weights=weights)

    def _calls(self, grads: Any) -> list[tuple[_Site, int, Call]]:
        """Return (site, run, call) of each run through a site, in the order in which they began."""
        bad_weights: dict[str, list[TensorFacts]] = {}
        for path, leaf in jax.tree_util.tree_leaves_with_path(grads):
            owner, facts = path_name(path).rpartition("/")[0], facts_of(f"gradient of {path_name(path)}", leaf)
            bad_weights.setdefault(owner, []).append(facts)
        found: list[tuple[_Site, int, Call]] = []
        made: dict[tuple[int, int], Call] = {}
        for site in self._sites:
            # Remat runs the forward pass again in the backward pass: only the first runs count.
            backwards, forwards = site.num_runs(INTO), site.num_runs(MADE)
            runs = min(forwards, backwards) or forwards
            for run in range(runs):
                above = id(site.parent)
                parent = made.get((above, run), made.get((above, 0)))  # a parent runs once, or as often as its child
                name = site.name if runs == 1 else f"{site.name} (run {run} of {runs})"
                call = Call(name, site.kind, parent)
                back = runs - 1 - run  # the backward pass visits the runs in reverse
                call.given, call.made, call.into = site.run(GIVEN, run), site.run(MADE, run), site.run(INTO, back)
                moment = min(site.moments.get(back, [0]))
                for facts in site.run(OUT_OF, back):
                    call.gives(facts, moment)
                if runs == 1:
                    for facts in bad_weights.get(site.name, []):
                        call.gives(facts, moment, to_weight=True)
                made[id(site), run] = call
                found.append((site, run, call))
        return found
