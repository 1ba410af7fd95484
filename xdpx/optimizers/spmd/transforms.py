"""Building blocks of optimizers: optax transformations that may use the extra argument `learning_rate`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax

from xdpx.optimizers.spmd.trees import Tree, name_of, weight_of

Transformation: TypeAlias = optax.GradientTransformationExtraArgs
Chosen = Callable[[str, jax.Array], bool]
"""Predicate on the name and value of a weight."""


def stateless(function: Callable[[Tree, Tree, jax.Array], Tree]) -> Transformation:
    """Return the stateless transformation of a function of (updates, weights, learning rate)."""

    def update(updates: Tree, state: Any, params: Tree = None, *, learning_rate: Any = 1.0, **_: object) -> Any:
        return function(updates, params, learning_rate), state

    return Transformation(lambda _: optax.EmptyState(), update)


def descend() -> Transformation:
    """Return the transformation that multiplies updates by minus the learning rate."""
    return stateless(lambda updates, _, rate: jax.tree.map(lambda update: -rate * update, updates))


def decay_weights(rate: float, chosen: Chosen) -> Transformation:
    """Return decoupled weight decay: adds -learning rate * `rate` * weight for the chosen weights; after `descend`.

    Source: Loshchilov and Hutter, Decoupled weight decay regularization, algorithm 2.
    """

    def shrink(updates: Tree, params: Tree, learning_rate: jax.Array) -> Tree:
        return _with_weights(updates, params, chosen, lambda update, weight: update - learning_rate * rate * weight)

    return stateless(shrink)


def penalise(chosen: Chosen, *, l1: float, l2: float) -> Transformation:
    """Return the transformation that adds the gradients of `l1 * sum |w|` and `l2 / 2 * sum w^2` of chosen weights."""

    def add(updates: Tree, params: Tree, _: jax.Array) -> Tree:
        return _with_weights(
            updates, params, chosen, lambda update, weight: update + l1 * jnp.sign(weight) + l2 * weight
        )

    return stateless(add)


def _with_weights(updates: Tree, params: Tree, chosen: Chosen, change: Callable[[Any, Any], Any]) -> Tree:
    def one(path: Any, update: jax.Array, weight: jax.Array) -> jax.Array:
        return change(update, weight) if chosen(name_of(path), weight) else update

    return jax.tree_util.tree_map_with_path(one, updates, params)


def root_mean_square(values: jax.Array) -> jax.Array:
    """Return the root mean square of all elements."""
    return jnp.sqrt(jnp.mean(jnp.square(values)))


def clip_by_size(threshold: float) -> Transformation:
    """Return the transformation that limits the root mean square of each weight's update to `threshold`.

    Source: Shazeer and Stern, Adafactor, section 6.
    """

    def clip(update: jax.Array) -> jax.Array:
        return update / jnp.maximum(1.0, root_mean_square(update) / threshold)

    return stateless(lambda updates, *_: jax.tree.map(clip, updates))


def scale_by_norm() -> Transformation:
    """Return the transformation that multiplies each weight's update by the weight's norm."""

    def scale(updates: Tree, params: Tree, _: jax.Array) -> Tree:
        return jax.tree.map(lambda update, weight: update * jnp.linalg.norm(weight.ravel()), updates, params)

    return stateless(scale)


def skip_untouched(inner: Transformation) -> Transformation:
    """Return `inner`, skipped for weights whose gradient is all zero: their state is unchanged too."""

    def update(updates: Tree, state: Any, params: Tree = None, **extra: Any) -> Any:
        touched = {
            name_of(path): jnp.any(gradient != 0) for path, gradient in jax.tree_util.tree_leaves_with_path(updates)
        }
        new, new_state = inner.update(updates, state, params, **extra)

        def keep(path: Any, after: jax.Array, before: jax.Array) -> jax.Array:
            name = weight_of(path, touched)
            return after if name is None else jnp.where(touched[name], after, before)

        def still(path: Any, step: jax.Array) -> jax.Array:
            return jnp.where(touched[name_of(path)], step, jnp.zeros_like(step))

        kept = jax.tree_util.tree_map_with_path(keep, new_state, state)
        return jax.tree_util.tree_map_with_path(still, new), kept

    return Transformation(inner.init, update)


def over_leading_axes(inner: Transformation, count: int) -> Transformation:
    """Return `inner`, vectorised over `count` leading axes: each slice of a weight is updated like a separate weight.

    Norms and factored moments are then those of single layers, as if they were not stacked.
    """
    for _ in range(count):
        inner = _over_leading_axis(inner)
    return inner


def _over_leading_axis(inner: Transformation) -> Transformation:
    def update(updates: Tree, state: Any, params: Tree = None, *, learning_rate: Any = 1.0, **_: object) -> Any:
        def one(update_: Tree, state_: Any, params_: Tree) -> Any:
            return inner.update(update_, state_, params_, learning_rate=learning_rate)

        return jax.vmap(one)(updates, state, params)

    return Transformation(jax.vmap(inner.init), update)


def chain(*parts: optax.GradientTransformation) -> Transformation:
    """Return the transformation that applies the parts in turn."""
    return optax.with_extra_args_support(optax.chain(*parts))
