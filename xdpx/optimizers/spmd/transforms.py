"""Small steps of update rules. Each is an optax transformation that may look at `learning_rate`, an extra argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax

from xdpx.optimizers.spmd.trees import Tree, name_of, weight_of

Transformation: TypeAlias = optax.GradientTransformationExtraArgs
Chosen = Callable[[str, jax.Array], bool]
"""Tells by name and value whether a weight is meant."""


def stateless(function: Callable[[Tree, Tree, jax.Array], Tree]) -> Transformation:
    """Return the transformation that maps (updates, weights, learning rate) to updates."""

    def update(updates: Tree, state: Any, params: Tree = None, *, learning_rate: Any = 1.0, **_: object) -> Any:
        return function(updates, params, learning_rate), state

    return Transformation(lambda _: optax.EmptyState(), update)


def descend() -> Transformation:
    """Turn a direction into a step: times minus the learning rate."""
    return stateless(lambda updates, _, rate: jax.tree.map(lambda update: -rate * update, updates))


def decay_weights(rate: float, chosen: Chosen) -> Transformation:
    """Add what shrinks the chosen weights: -learning rate * `rate` * weight. Stands after `descend`.

    Source: Loshchilov and Hutter, Decoupled weight decay regularization, algorithm 2.
    """

    def shrink(updates: Tree, params: Tree, learning_rate: jax.Array) -> Tree:
        return _with_weights(updates, params, chosen, lambda update, weight: update - learning_rate * rate * weight)

    return stateless(shrink)


def penalise(chosen: Chosen, *, l1: float, l2: float) -> Transformation:
    """Add the gradients of `l1 * sum |w|` and `l2 / 2 * sum w^2` of the chosen weights."""

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
    """Return the root of the mean square of all elements."""
    return jnp.sqrt(jnp.mean(jnp.square(values)))


def clip_by_size(threshold: float) -> Transformation:
    """Shrink each weight's update whose root mean square is above `threshold` to that.

    Source: Shazeer and Stern, Adafactor, section 6.
    """

    def clip(update: jax.Array) -> jax.Array:
        return update / jnp.maximum(1.0, root_mean_square(update) / threshold)

    return stateless(lambda updates, *_: jax.tree.map(clip, updates))


def scale_by_norm() -> Transformation:
    """Multiply each weight's update by the weight's norm."""

    def scale(updates: Tree, params: Tree, _: jax.Array) -> Tree:
        return jax.tree.map(lambda update, weight: update * jnp.linalg.norm(weight.ravel()), updates, params)

    return stateless(scale)


def skip_untouched(inner: Transformation) -> Transformation:
    """Leave weights whose gradient is zero everywhere as they are, and what `inner` keeps of them, too."""

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
    """Apply `inner` to weights with `count` leading axes as if each slice were a weight of its own.

    Sizes, norms and factored moments are then those of one layer, as if the layers had never been stacked.
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
    """Apply one after another."""
    return optax.with_extra_args_support(optax.chain(*parts))
