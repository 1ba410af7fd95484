"""Train a decoder in bf16 on one device. Usage: spmd_flax.py LIBRARY SPEC.json, LIBRARY xdpx or flax.

`flax` is a plain script with flax.linen and optax; `xdpx` is our engine and loop with the same sizes. Tokens are random
and the same in each update, which does not change its cost. SPEC has layers, dims, heads, vocab, length, rows, updates,
warm_up and gpu.
Prints {"tokens_per_second", "peak_bytes", "weights", "losses"}; peak_bytes is null if the device does not report it,
weights are those used in matrix products, losses the first and the last.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

RATE = 1e-4

Spec = dict[str, int]


class Training(NamedTuple):
    """A training: `update` does not wait for the device; `loss_of` waits for the loss of what `update` returned."""

    update: Callable[[], Any]
    loss_of: Callable[[Any], float]
    parameters: int


class Block(nn.Module):
    """Attention and feed-forward layers, each after a norm."""

    spec: Any

    @nn.compact
    def __call__(self, x: jax.Array, _: None) -> tuple[jax.Array, None]:
        """Return activations of the same shape (B, T, D)."""
        dims, heads = self.spec["dims"], self.spec["heads"]
        normed = nn.LayerNorm(dtype=jnp.bfloat16)(x)
        qkv = nn.DenseGeneral((3, heads, dims // heads), use_bias=False, dtype=jnp.bfloat16)(normed)
        fused: Literal["cudnn"] | None = "cudnn" if jax.devices()[0].platform == "gpu" else None
        seen = jax.nn.dot_product_attention(
            qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], is_causal=True, implementation=fused
        )
        x = x + nn.DenseGeneral(dims, axis=(-2, -1), use_bias=False, dtype=jnp.bfloat16)(seen)
        wide = nn.gelu(nn.Dense(4 * dims, dtype=jnp.bfloat16)(nn.LayerNorm(dtype=jnp.bfloat16)(x)))
        return x + nn.Dense(dims, dtype=jnp.bfloat16)(wide), None


class Decoder(nn.Module):
    """Scanned layers, recomputed in the backward pass, with tied embeddings."""

    spec: Any

    @nn.compact
    def __call__(self, ids: jax.Array) -> jax.Array:
        """Return logits (B, T, V)."""
        spec = self.spec
        table = nn.Embed(spec["vocab"], spec["dims"], dtype=jnp.bfloat16)
        places = self.param("places", nn.initializers.normal(0.02), (spec["length"], spec["dims"]))
        x = table(ids) + places.astype(jnp.bfloat16)
        policy = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
        block = nn.remat(Block, policy=policy, prevent_cse=False)
        layers = nn.scan(
            block, variable_axes={"params": 0}, split_rngs={"params": True}, in_axes=nn.broadcast, length=spec["layers"]
        )
        x, _ = layers(spec)(x, None)
        return table.attend(nn.LayerNorm(dtype=jnp.bfloat16)(x))


def by_hand(spec: Spec) -> Training:
    """Return the training of a plain script."""
    frozen: Any = nn.FrozenDict
    model: Any = Decoder(frozen(spec))
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(RATE))
    ids = tokens(spec)

    def loss(params: Any, ids: jax.Array) -> jax.Array:
        logits = model.apply({"params": params}, ids[:, :-1]).astype(jnp.float32)
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, ids[:, 1:]))

    def step(params: Any, kept: Any, ids: jax.Array) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, ids)
        moves, kept = optimizer.update(gradients, kept, params)
        return optax.apply_updates(params, moves), kept, value

    params = jax.jit(model.init)(jax.random.key(0), ids[:, :-1])["params"]
    state = [params, jax.jit(optimizer.init)(params)]
    compiled = jax.jit(step, donate_argnums=(0, 1))

    def update() -> Any:
        state[0], state[1], value = compiled(*state, ids)
        return value

    return Training(update, float, sum(leaf.size for leaf in jax.tree.leaves(params)))


def by_xdpx(spec: Spec) -> Training:
    """Return the training with our engine."""
    from xdpx.experiments.lm.model_params import TransformerLm
    from xdpx.experiments.running.options import options_of
    from xdpx.experiments.running.parts import build_parts
    from xdpx.utils.nested_map import NestedMap

    class Sized(TransformerLm):
        ICI_MESH_SHAPE = (1, 1, 1)
        NUM_LAYERS, MODEL_DIMS, NUM_HEADS = spec["layers"], spec["dims"], spec["heads"]
        DIMS_PER_HEAD = spec["dims"] // spec["heads"]
        VOCAB_SIZE, MAX_SEQ_LEN, PERCORE_BATCH_SIZE = spec["vocab"], spec["length"], spec["rows"]
        FPROP_DTYPE, ACTIVATION, PACKED_INPUT = "bfloat16", "GELU", False
        USE_REPEATED_LAYER, CHECKPOINT_POLICY = True, "save_dot_with_no_batch_dim"
        TRAINABLE_POSITION_EMB, TRAINABLE_PE_MAX_SEQ_LEN = True, spec["length"]
        SOFTMAX_CAP_LOGITS, ATTEN_LOGIT_CAP = None, None
        CLIP_GRADIENT_NORM_TO_VALUE, LEARNING_RATE, LR_SCHEDULE = 1.0, RATE, "constant"

    engine = build_parts(Sized(), options_of("memory://sized", {})).engine
    ids = tokens(spec)
    ones = np.ones((spec["rows"], spec["length"]), np.float32)
    places = np.broadcast_to(np.arange(spec["length"], dtype=np.int32), ones.shape)
    batch = engine.put(NestedMap(
        ids=ids[:, :-1], labels=ids[:, 1:], weights=ones, paddings=0 * ones,
        segment_ids=ones.astype(np.int32), segment_pos=places, eval_sample_weights=ones[:, 0],
    ))  # fmt: skip
    state = [engine.start(0)]

    def update() -> Any:
        state[0], facts = engine.update(state[0], [batch])
        return facts

    def loss_of(facts: Any) -> float:
        numbers = engine.facts_to_host(facts)
        return float(numbers["loss_sum"] / numbers["count"])

    return Training(update, loss_of, sum(int(leaf.size) for leaf in jax.tree.leaves(state[0]["params"])))


def tokens(spec: Spec) -> np.ndarray[Any, Any]:
    """Return random tokens, one more per row than the length."""
    return np.random.default_rng(0).integers(0, spec["vocab"], (spec["rows"], spec["length"] + 1)).astype(np.int32)


def main() -> None:
    """Take updates, and measure from the end of the warm-up to the last one."""
    with open(sys.argv[2], encoding="utf-8") as file:
        spec: Spec = json.load(file)
    device = jax.devices()[0]
    if spec["gpu"] and device.platform == "cpu":
        sys.exit(f"JAX {jax.__version__} sees no GPU: install what requirements/jax-cuda13.txt names.")
    training = {"flax": by_hand, "xdpx": by_xdpx}[sys.argv[1]](spec)
    losses = [training.loss_of(training.update()) for _ in range(spec["warm_up"])]
    started = time.perf_counter()
    for _ in range(spec["updates"] - spec["warm_up"]):
        last = training.update()
    losses.append(training.loss_of(last))
    taken = spec["rows"] * spec["length"] * (spec["updates"] - spec["warm_up"])
    told = {
        "tokens_per_second": taken / (time.perf_counter() - started),
        "peak_bytes": (device.memory_stats() or {}).get("peak_bytes_in_use"),
        "weights": training.parameters - spec["length"] * spec["dims"],  # positions are only added, not multiplied
        "losses": [losses[0], losses[-1]],
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
