"""Our kernel beside plain attention, and which kernel is chosen; programs for CUDA are lowered, not run."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.tiers import some
from xdpx.models.spmd.layers import fused_attention as fused
from xdpx.models.spmd.layers.attention import Attention
from xdpx.models.spmd.layers.masks import segment_mask
from xdpx.models.spmd.sharding import placed, without_mesh_axes

T, H, CAP = 64, 32, 2.0
SEGMENTS = jnp.array([[1] * 20 + [2] * 30 + [0] * 14, [1] * 64])


def arrays(heads: int = 2, kv_heads: int = 2, dtype: Any = jnp.float32) -> list[jax.Array]:
    dice = np.random.default_rng(0)
    shapes = [(2, T, heads, H), (2, T, kv_heads, H), (2, T, kv_heads, H)]
    return [jnp.asarray(dice.standard_normal(shape), dtype) for shape in shapes]


def plain(query: Any, key: Any, value: Any, mask: Any, *, causal: bool, cap: float = CAP) -> jax.Array:
    key, value = (jnp.repeat(part, query.shape[2] // key.shape[2], axis=2) for part in (key, value))
    logits = jnp.einsum("btnh,bsnh->bnts", query, key)
    logits = cap * jnp.tanh(logits / cap) if cap else logits
    seen = jnp.tril(jnp.ones((T, T), bool))[None, None] if causal else jnp.ones((1, 1, T, T), bool)
    logits = jnp.where(seen if mask is None else seen & mask, logits, -1e30)
    return jnp.einsum("bnts,bsnh->btnh", jax.nn.softmax(logits, axis=-1), value)


@pytest.mark.parametrize(
    ("causal", "packed", "kv_heads", "cap"),
    some(
        [
            (True, True, 2, CAP),
            (True, False, 1, CAP),
            (False, True, 2, CAP),
            (False, False, 2, CAP),
            (True, True, 2, 0.0),
        ],
        [(True, False, 1, CAP), (False, True, 2, CAP), (True, True, 2, 0.0)],
    ),
)
def test_our_kernel_gives_the_numbers_and_gradients_of_plain_attention(
    causal: bool, packed: bool, kv_heads: int, cap: float
) -> None:
    given, mask = arrays(kv_heads=kv_heads), segment_mask(SEGMENTS) if packed else None
    weights = jnp.asarray(np.random.default_rng(1).standard_normal((2, T, 2, H)), jnp.float32)

    def ours(q: Any, k: Any, v: Any) -> Any:
        return jnp.sum(weights * fused.flash(q, k, v, mask, causal=causal, cap=cap, interpret=True))

    def theirs(q: Any, k: Any, v: Any) -> Any:
        return jnp.sum(weights * plain(q, k, v, mask, causal=causal, cap=cap))

    found, wanted = (jax.jit(jax.value_and_grad(f, (0, 1, 2)))(*given) for f in (ours, theirs))
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)
    for one, other in zip(found[1], wanted[1], strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


def test_devices_share_the_rows_and_heads_of_our_kernel() -> None:
    mesh = jax.make_mesh((1, 2, 2), ("replica", "data", "mdl"), axis_types=(jax.sharding.AxisType.Auto,) * 3)
    mask = segment_mask(SEGMENTS)

    def run(q: Any, k: Any, v: Any) -> Any:
        return fused.flash(q, k, v, mask, causal=True, cap=CAP, interpret=True)

    where = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    given = jax.device_put(arrays(), where)
    with placed(mesh):
        jaxpr = str(jax.make_jaxpr(run)(*given))
        found = jax.jit(run)(*given)
    assert f"f32[1,{T},1,{H}]" in jaxpr
    np.testing.assert_allclose(found, jax.jit(run)(*arrays()), atol=1e-6)


def chosen(platform: str = "cuda", **fields: Any) -> str:
    given = {"dtype": jnp.bfloat16, "width": 64, "cap": None, "dropout": 0.0, "mask": None, "bias": False, "tokens": T}
    given |= fields
    query = jax.ShapeDtypeStruct((2, given["tokens"], 2, given["width"]), given["dtype"])
    with fused.traced_for(platform, imitated=True) as found:
        choice = fused.choose(
            query, query, cap=given["cap"], dropout=given["dropout"], has_bias=given["bias"], mask=given["mask"]
        )
    assert found == [choice.reason]
    return f"{choice.kernel}: {choice.reason}"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, "cudnn: cuDNN's fused kernel"),
        ({"mask": jax.ShapeDtypeStruct((2, 1, T, T), bool)}, "cudnn: cuDNN's fused kernel, texts of a row separated"),
        ({"cap": 50.0}, "pallas: our fused kernel, for the logit cap 50, which cuDNN's lacks"),
        ({"tokens": 49, "mask": jax.ShapeDtypeStruct((2, 1, 49, 49), bool)}, "plain: not fused: masks of odd lengths"),
        ({"dtype": jnp.float32}, "plain: not fused: float32 logits; a fused kernel takes bfloat16"),
        ({"width": 256}, "plain: not fused: heads of width 256"),
        ({"dropout": 0.1}, "plain: not fused: dropout 0.1 of probabilities"),
        (
            {"cap": 50.0, "bias": True},
            "plain: not fused: the logit cap 50, which cuDNN's kernel lacks, with relative biases",
        ),
        (
            {"cap": 50.0, "width": 40},
            "plain: not fused: the logit cap 50, which cuDNN's kernel lacks, with heads of width 40",
        ),
        (
            {"cap": 50.0, "tokens": 100},
            "plain: not fused: the logit cap 50, which cuDNN's kernel lacks, with 100 queries and 100 keys",
        ),
        (
            {"cap": 50.0, "mask": jax.ShapeDtypeStruct((2, 2, T, T), bool)},
            "plain: not fused: the logit cap 50, which cuDNN's kernel lacks, with a mask",
        ),
        ({"platform": "rocm"}, "plain: not fused: rocm has no fused kernel here"),
        ({"platform": "cpu", "cap": 50.0}, "plain: not fused: cpu has no fused kernel here"),
    ],
)
def test_the_kernel_is_chosen_with_a_reason(fields: dict[str, Any], told: str) -> None:
    assert chosen(**fields).startswith(told)


@pytest.fixture
def with_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cuDNN that JAX believes in, so that a program for it can be lowered."""
    from jax._src.cudnn import fused_attention_stablehlo as cudnn

    monkeypatch.setattr(cudnn, "check_cudnn_version", lambda: 91200)


@pytest.mark.usefixtures("with_cudnn")
@pytest.mark.parametrize(("cap", "kernel"), [(None, "__cudnn$fmha"), (50.0, "__gpu$xla.gpu.triton")])
def test_a_program_for_cuda_holds_the_kernel_and_no_logits(cap: float | None, kernel: str) -> None:
    layer = Attention(input_dim=64, num_heads=2, dim_per_head=32, causal=True, logit_cap=cap, fprop_dtype=jnp.bfloat16)
    x, mask = jax.ShapeDtypeStruct((2, T, 64), jnp.bfloat16), jax.ShapeDtypeStruct((2, 1, T, T), bool)
    variables = jax.eval_shape(layer.init, jax.random.key(0), x)

    def loss(variables: Any, x: Any, mask: Any) -> Any:
        return layer.apply(variables, x, mask).astype(jnp.float32).sum()

    with fused.traced_for("cuda"):
        text = jax.jit(jax.grad(loss)).trace(variables, x, mask).lower(lowering_platforms=("cuda",)).as_text()
    calls = re.findall(r"custom_call @([\w$.]+)", text)
    assert sum(call.startswith(kernel) for call in calls) >= 2, set(calls)
    assert f"tensor<2x2x{T}x{T}xf32>" not in text


def test_in_the_stages_of_a_pipeline_packed_texts_take_our_kernel() -> None:
    with without_mesh_axes("stage"):
        assert chosen(mask=jax.ShapeDtypeStruct((2, 1, T, T), bool)).startswith(
            "pallas: our fused kernel, for masks in"
        )
        assert chosen().startswith("cudnn: ")
