"""Planted NaN in layers of a flax model, also in a stack that is compiled once: the layer and its run are named."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from tests.tiers import some
from xdpx.engines.origin import NonFiniteOrigin
from xdpx.engines.spmd.tracing_back import origin_of

FORWARD, BACKWARD = (1, "forward"), (2, "backward")
BATCH = {"x": np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32), "y": np.arange(4) % 2}


@jax.custom_vjp
def steep(values: Any, slope: Any) -> Any:
    """Return the values; their gradient is multiplied by a slope."""
    return values


steep.defvjp(lambda values, slope: (values, slope), lambda slope, grad: (grad * slope, None))


class Block(nn.Module):
    """A layer whose fault depends on a number of its own weights, so that it can be in one of a stack."""

    @nn.compact
    def __call__(self, hidden: Any) -> Any:
        fault = self.param("fault", nn.initializers.zeros, (), jnp.float32)
        found = nn.Dense(8)(hidden)
        found = found * jnp.where(fault == 1, jnp.nan, 1.0)
        return hidden + nn.tanh(steep(found, jnp.where(fault == 2, jnp.nan, 1.0)))


class Stack(nn.Module):
    """Three layers, one after another or as one that is repeated, with or without remat."""

    how: str

    @nn.compact
    def __call__(self, hidden: Any) -> Any:
        if self.how == "plain":
            for _ in range(3):
                hidden = Block()(hidden)
        else:
            body = nn.remat(Block, prevent_cse=False) if self.how == "remat" else Block

            class Step(nn.Module):
                @nn.compact
                def __call__(self, hidden: Any, _: Any) -> Any:
                    return body(name="block")(hidden), None

            stack = nn.scan(Step, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
            hidden, _ = stack(name="layers")(hidden, None)
        return nn.Dense(2, name="top")(hidden)


def found_in(
    how: str, fault: int, layer: int, *, loss_fault: bool = False, batch: Any = BATCH
) -> NonFiniteOrigin | None:
    model = Stack(how)
    params = model.init(jax.random.key(0), BATCH["x"])["params"]
    if how == "plain":
        params[f"Block_{layer}"]["fault"] = jnp.float32(fault)
    else:
        place = params["layers"]["block"]
        place["fault"] = place["fault"].at[layer].set(fault)

    def one_pass(params: Any, rest: Any, batch: Any, key: object) -> Any:
        def loss(params: Any) -> Any:
            logits = model.apply({"params": params}, batch["x"])
            value = -jax.nn.log_softmax(logits)[jnp.arange(4), batch["y"]].sum()
            return value + jnp.log(jnp.sum(logits) * 0) if loss_fault else value

        value, grads = jax.value_and_grad(loss)(params)
        return value, grads, rest

    state: Any = {"params": params, "non_trainable": {}}
    return origin_of(state, [jax.tree.map(jnp.asarray, batch)], [jax.random.key(1)], one_pass)


# The other ways are those in which faults are found below.
@pytest.mark.parametrize("how", some(["plain", "scan", "remat"], ["scan"]))
def test_a_healthy_update_has_no_origin(how: str) -> None:
    assert found_in(how, 0, 0) is None


@pytest.mark.parametrize(
    ("fault", "phase", "layer"),
    some([(*fault, layer) for fault in (FORWARD, BACKWARD) for layer in (0, 2)], [(*FORWARD, 0), (*BACKWARD, 2)]),
)
def test_the_layer_is_named(fault: int, phase: str, layer: int) -> None:
    origin = found_in("plain", fault, layer)
    assert origin is not None
    assert (origin.phase, origin.name, origin.kind) == (phase, f"Block_{layer}", "Block")


@pytest.mark.parametrize(
    ("how", "fault", "phase"),
    some(
        [(how, *fault) for how in ("scan", "remat") for fault in (FORWARD, BACKWARD)],
        [("scan", *FORWARD), ("remat", *BACKWARD)],
    ),
)
def test_the_run_of_a_repeated_layer_is_named(how: str, fault: int, phase: str) -> None:
    origin = found_in(how, fault, 1)
    assert origin is not None
    assert (origin.phase, origin.kind) == (phase, "Block")
    assert origin.name == "layers/block (run 1 of 3)"


def test_loss_batch_and_weights_are_told_apart() -> None:
    loss = found_in("plain", 0, 0, loss_fault=True)
    x = BATCH["x"].copy()
    x[2, 3] = np.nan
    batch, weights = found_in("plain", 0, 0, batch={**BATCH, "x": x}), found_in("plain", np.nan, 1)  # type: ignore[arg-type]
    assert loss is not None
    assert loss.phase == "loss"
    assert batch is not None
    assert (batch.phase, batch.name, batch.rows) == ("batch", "x", (2,))
    assert weights is not None
    assert (weights.phase, weights.name) == ("weights", "Block_1/fault")
