"""Fused attention on a GPU, without logits in memory: choice of the kernel, and our own for capped logits.

cuDNN's kernel, which `jax.nn.dot_product_attention` provides, does not support a cap of logits. Ours does; otherwise
it is FlashAttention-2, written in Pallas for Triton.

B rows, T queries, S keys, N heads, H width of a head.

Source: Dao, FlashAttention-2, 2023, algorithms 1 and 2; `jax.experimental.pallas.ops.gpu.attention`.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import importlib.util
from collections.abc import Generator
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from xdpx.logger import log
from xdpx.models.spmd.layers.masks import lowest
from xdpx.models.spmd.sharding import below_vmap_over_stages, split_of

Kernel = Literal["cudnn", "pallas", "plain"]

_CUDA = "cuda"

WIDEST_HEAD = 128
"""Supported by cuDNN on every GPU since Ampere, and by our kernel."""

_PALLAS_HEADS = (32, 64, 128)
_BLOCKS = (64, 32, 16)
"""Tokens per block: the first that divides both lengths. On Ampere these fit into the shared memory of a multiprocessor
for the widest head, with double buffering."""

_HEADS = ("activation_batch", None, "activation_heads", None)


class KernelChoice(NamedTuple):
    """The kernel to use, and the reason."""

    kernel: Kernel
    reason: str


class _Target(NamedTuple):
    """Platform that a program is traced for.

    Attributes:
        platform: `cuda`, `rocm`, `tpu` or `cpu`.
        imitated: whether nothing will run: kernels are replaced by code with the same inputs, outputs and memory.
        found: reasons of the choices made while tracing.
    """

    platform: str
    imitated: bool
    found: list[str]


_told: set[str] = set()
"""Reasons already logged, since each layer and program makes its own choice."""

_target: contextvars.ContextVar[_Target | None] = contextvars.ContextVar("target", default=None)


@contextlib.contextmanager
def traced_for(platform: str, *, imitated: bool = False) -> Generator[list[str]]:
    """Choose kernels as on another platform while a program is traced inside; yield the reasons of the choices.

    Args:
        platform: `cuda`, `rocm`, `tpu` or `cpu`.
        imitated: compile for this machine: kernels are replaced by code with the same inputs, outputs and memory.
    """
    found: list[str] = []
    token = _target.set(_Target(platform, imitated, found))
    try:
        yield found
    finally:
        _target.reset(token)


def _here() -> _Target:
    """Return the platform that is currently traced for."""
    return _target.get() or _Target(_own_platform(), False, [])


def _own_platform() -> str:
    name = jax.default_backend()
    if name != "gpu":
        return name
    from jax.extend import backend

    return "rocm" if "rocm" in backend.get_backend().platform_version.lower() else "cuda"


def choose(
    query: jax.Array,
    key: jax.Array,
    *,
    cap: float | None,
    dropout: float,
    has_bias: bool,
    mask: jax.Array | None,
    anywhere: bool = False,
) -> KernelChoice:
    """Choose the kernel for given queries and keys on the platform that is traced for.

    Args:
        query: (B, T, N, H).
        key: (B, S, K, H).
        cap: of logits; None or 0 for none.
        dropout: of probabilities, 0 for none.
        has_bias: whether a bias is added to logits.
        mask: (B or 1, 1 or N, T or 1, S) or None.
        anywhere: choose as on CUDA.
    """
    here = _here()
    platform = _CUDA if anywhere else here.platform
    choice = _choice(platform, query, key, cap=cap, dropout=dropout, has_bias=has_bias, mask=mask)
    if choice.reason not in here.found:
        here.found.append(choice.reason)
    if here.platform == _CUDA and not here.imitated and choice.reason not in _told:
        _told.add(choice.reason)
        log.info(f"attention: {choice.reason}")
    return choice


def _choice(
    platform: str,
    query: jax.Array,
    key: jax.Array,
    *,
    cap: float | None,
    dropout: float,
    has_bias: bool,
    mask: jax.Array | None,
) -> KernelChoice:
    against = unable(query, dropout)
    if platform != _CUDA:
        against = f"{platform} has no fused kernel here"
    if against:
        return KernelChoice("plain", f"not fused: {against}")
    lacks = _lacks_in_cudnn(query, key, cap=cap, mask=mask)
    if not lacks:
        packed = "" if mask is None else ", texts of a row separated by its bias"
        return KernelChoice("cudnn", f"cuDNN's fused kernel{packed}")
    against = _lacks_in_ours(query, key, has_bias=has_bias, mask=mask)
    if against:
        return KernelChoice(
            "plain", f"not fused: {lacks}, which cuDNN's kernel lacks, with {against}, which this one lacks"
        )
    return KernelChoice("pallas", f"our fused kernel, for {lacks}, which cuDNN's lacks")


def _lacks_in_cudnn(query: jax.Array, key: jax.Array, *, cap: float | None, mask: jax.Array | None) -> str:
    if cap:
        return f"the logit cap {cap:g}"
    if mask is not None and below_vmap_over_stages():
        return "masks in the stages of a pipeline"  # JAX's batching rule supports only a mask per head
    return "masks of odd lengths" if mask is not None and (query.shape[1] % 2 or key.shape[1] % 2) else ""


def unable(query: jax.Array, dropout: float) -> str:
    """Return why no fused kernel supports this; '' if one may."""
    width = query.shape[-1]
    if query.dtype not in {jnp.dtype(jnp.bfloat16), jnp.dtype(jnp.float16)}:
        return f"{query.dtype} logits; a fused kernel takes bfloat16 or float16 (FPROP_DTYPE)"
    if width > WIDEST_HEAD or width % 8:
        return f"heads of width {width}; a fused kernel takes up to {WIDEST_HEAD} that 8 divides"
    return f"dropout {dropout:g} of probabilities" if dropout else ""


def _lacks_in_ours(query: jax.Array, key: jax.Array, *, has_bias: bool, mask: jax.Array | None) -> str:
    queries, width = query.shape[1], query.shape[3]
    if has_bias:
        return "relative biases"
    if width not in _PALLAS_HEADS:
        return f"heads of width {width} (it takes {', '.join(map(str, _PALLAS_HEADS))})"
    if _block(queries, key.shape[1]) is None:
        return f"{queries} queries and {key.shape[1]} keys (it takes multiples of {_BLOCKS[-1]})"
    if importlib.util.find_spec("jax.experimental.pallas.triton") is None:
        return "this release of JAX (it has no Pallas for Triton)"
    return "a mask for each head" if mask is not None and mask.shape[1] > 1 else ""


def _block(queries: int, keys: int) -> int | None:
    return next((size for size in _BLOCKS if not queries % size and not keys % size), None)


def attend(
    kernel: Kernel,
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: jax.Array | None,
    bias: jax.Array | None,
    *,
    causal: bool,
    cap: float | None,
) -> jax.Array:
    """Return attention by a fused kernel, (B, T, N, H).

    Args:
        kernel: result of `choose`, not `plain`.
        query: scaled, (B, T, N, H).
        key: (B, S, K, H).
        value: like `key`.
        mask: true where a query may attend to a key, (B or 1, 1 or N, T or 1, S); None: all that `causal` allows.
        bias: added to logits, for cuDNN only.
        causal: whether a token attends only to itself and earlier ones.
        cap: of logits, for our kernel only.
    """
    whole = None if mask is None else jnp.broadcast_to(mask, (*mask.shape[:2], query.shape[1], key.shape[1]))
    here = _here()
    if here.imitated:
        return _imitated(query, key, value)
    native = here.platform == _CUDA
    if kernel == "cudnn":
        options: Any = {"is_causal": causal, "scale": 1.0, "implementation": "cudnn" if native else None}
        fused: jax.Array = jax.nn.dot_product_attention(query, key, value, bias, whole, **options)
        return fused
    return flash(query, key, value, whole, causal=causal, cap=cap or 0.0, interpret=not native)


# ---- our kernel


def flash(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    mask: jax.Array | None,
    *,
    causal: bool,
    cap: float,
    interpret: bool = False,
) -> jax.Array:
    """Return attention with capped logits by our kernel; each device computes its rows and heads.

    Args:
        query: scaled, (B, T, N, H), H a power of two.
        key: (B, S, K, H), K a divisor of N.
        value: like `key`.
        mask: true where a query may attend to a key, (B or 1, 1, T, S); None: all that `causal` allows.
        causal: whether a token attends only to itself and earlier ones.
        cap: logits become cap tanh(logits / cap); 0 for none.
        interpret: run the kernel in Pallas's interpreter, on any platform.
    """
    block = _block(query.shape[1], key.shape[1])
    if block is None:
        raise ValueError(f"{query.shape[1]} queries and {key.shape[1]} keys: both must be multiples of {_BLOCKS[-1]}.")
    groups = query.shape[2] // key.shape[2]
    key, value = (jnp.repeat(part, groups, axis=2) if groups > 1 else part for part in (key, value))
    options = _Options(causal, cap, block, interpret)
    arrays = (query, key, value) if mask is None else (query, key, value, mask.astype(jnp.int8))

    def on_device(query: jax.Array, key: jax.Array, value: jax.Array, seen: jax.Array | None = None) -> jax.Array:
        out: jax.Array = _flash(query, key, value, seen, options)
        return out

    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or mesh.size == 1:
        return on_device(*arrays)
    heads = split_of(_HEADS, query.shape)
    specs = [heads] * 3 if mask is None else [*[heads] * 3, split_of(_HEADS[:2], mask.shape)]
    # A kernel is opaque to the compiler, which would compute the whole on every device.
    laid: jax.Array = jax.shard_map(on_device, in_specs=tuple(specs), out_specs=heads, check_vma=False)(*arrays)
    return laid


class _Options(NamedTuple):
    """Options of our kernel; see `flash`."""

    causal: bool
    cap: float
    block: int
    interpret: bool


_Kept = tuple[jax.Array, jax.Array, jax.Array, jax.Array | None, jax.Array, jax.Array]
"""Residuals of the backward pass: queries, keys, values, mask, output, and log(sum(exp(logits)))."""


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _flash(query: jax.Array, key: jax.Array, value: jax.Array, seen: jax.Array | None, options: _Options) -> jax.Array:
    out: jax.Array = _forward(query, key, value, seen, options)[0]
    return out


def _flash_forward(
    query: jax.Array, key: jax.Array, value: jax.Array, seen: jax.Array | None, options: _Options
) -> tuple[Any, Any]:
    out, log_sum = _forward(query, key, value, seen, options)
    return out, (query, key, value, seen, out, log_sum)


def _forward(query: jax.Array, key: jax.Array, value: jax.Array, seen: jax.Array | None, options: _Options) -> Any:
    """Return the output (B, T, N, H) and log(sum(exp(logits))), float32 (B, N, T)."""
    rows, queries, heads, width = query.shape
    blocked, whole = _specs(options.block, key.shape[1], width)
    return _call(
        functools.partial(_forward_kernel, options=options),
        options,
        (queries // options.block, rows, heads),
        [blocked, whole, whole, _seen_spec(seen, (options.block, key.shape[1]), by_query=True)],
        (query, key, value, seen),
        [(query, blocked), (jax.ShapeDtypeStruct((rows, heads, queries), jnp.float32), _line_spec(options.block))],
        flops=4 * query.size * key.shape[1],
    )


def _flash_backward(options: _Options, kept: _Kept, grad: jax.Array) -> tuple[Any, ...]:
    query, key, value, seen, out, log_sum = kept
    rows, queries, heads, width = query.shape
    keys, block = key.shape[1], options.block
    delta = jnp.einsum("btnh,btnh->bnt", out.astype(jnp.float32), grad.astype(jnp.float32))
    blocked, whole_keys = _specs(block, keys, width)
    _, whole_queries = _specs(block, queries, width)
    arrays = (query, key, value, seen, grad, log_sum, delta)
    line, whole_line = _line_spec(block), _line_spec(queries, whole=True)
    (d_query,) = _call(
        functools.partial(_query_kernel, options=options),
        options,
        (queries // block, rows, heads),
        [blocked, whole_keys, whole_keys, _seen_spec(seen, (block, keys), by_query=True), blocked, line, line],
        arrays,
        [(query, blocked)],
    )
    seen_spec = _seen_spec(seen, (queries, block), by_query=False)
    d_key, d_value = _call(
        functools.partial(_key_kernel, options=options),
        options,
        (keys // block, rows, heads),
        [whole_queries, blocked, blocked, seen_spec, whole_queries, whole_line, whole_line],
        arrays,
        [(key, blocked), (value, blocked)],
    )
    return d_query, d_key, d_value, None


_flash.defvjp(_flash_forward, _flash_backward)


def _call(
    kernel: functools.partial[None],
    options: _Options,
    grid: tuple[int, ...],
    in_specs: list[Any],
    arrays: tuple[jax.Array | None, ...],
    outputs: list[Any],
    *,
    flops: int = 0,
) -> Any:
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    return pl.pallas_call(
        kernel,
        grid=grid,
        in_specs=in_specs,
        out_specs=[spec for _, spec in outputs],
        out_shape=[jax.ShapeDtypeStruct(like.shape, like.dtype) for like, _ in outputs],
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=2),
        cost_estimate=pl.CostEstimate(flops=flops, transcendentals=0, bytes_accessed=0) if flops else None,
        interpret=options.interpret,
        name=f"capped_attention{kernel.func.__name__.removesuffix('_kernel')}",
    )(*arrays)


def _specs(block: int, whole: int, width: int) -> tuple[Any, Any]:
    """Return block specs of (B, T, N, H): a block of tokens, or all tokens, of one row and head."""
    from jax.experimental import pallas as pl

    one = pl.BlockSpec((None, block, None, width), lambda i, b, n: (b, i, n, 0))
    return one, pl.BlockSpec((None, whole, None, width), lambda i, b, n: (b, 0, n, 0))


def _line_spec(size: int, *, whole: bool = False) -> Any:
    """Return the block spec of (B, N, T)."""
    from jax.experimental import pallas as pl

    return pl.BlockSpec((None, None, size), (lambda i, b, n: (b, n, 0)) if whole else (lambda i, b, n: (b, n, i)))


def _seen_spec(seen: jax.Array | None, shape: tuple[int, int], *, by_query: bool) -> Any:
    """Return the block spec of a mask (B or 1, 1, T, S)."""
    from jax.experimental import pallas as pl

    if seen is None:
        return None
    shared = seen.shape[0] == 1

    def place(i: jax.Array, b: jax.Array, n: jax.Array) -> Any:
        row = 0 if shared else b
        return (row, 0, i, 0) if by_query else (row, 0, 0, i)

    return pl.BlockSpec((None, None, *shape), place)


def _forward_kernel(
    q_ref: Any, k_ref: Any, v_ref: Any, seen_ref: Any, o_ref: Any, z_ref: Any, *, options: _Options
) -> None:
    """Compute one block of queries, in a loop over blocks of keys."""
    from jax.experimental import pallas as pl

    block = options.block
    first = pl.program_id(0) * block
    q = q_ref[...]

    def step(index: jax.Array, carry: tuple[jax.Array, ...]) -> Any:
        out, highest, total = carry
        at = pl.ds(index * block, block)
        seen = None if seen_ref is None else seen_ref[:, at]
        logits, _ = _logits(q, k_ref[at, :], seen, first, index * block, options)
        top = jnp.maximum(highest, jnp.max(logits, axis=-1))
        shrunk, probs = jnp.exp(highest - top), jnp.exp(logits - top[:, None])
        v = v_ref[at, :]
        return out * shrunk[:, None] + _dot(probs.astype(v.dtype), v), top, total * shrunk + jnp.sum(probs, axis=-1)

    empty = jnp.zeros((block, q.shape[-1]), jnp.float32)
    begin = (empty, jnp.full((block,), -jnp.inf, jnp.float32), jnp.zeros((block,), jnp.float32))
    out, highest, total = jax.lax.fori_loop(0, _end(k_ref.shape[0], options), step, begin)
    o_ref[...] = (out / total[:, None]).astype(o_ref.dtype)
    z_ref[...] = highest + jnp.log(total)


def _query_kernel(*refs: Any, options: _Options) -> None:
    """Compute the gradient of one block of queries, in a loop over blocks of keys."""
    from jax.experimental import pallas as pl

    q_ref, k_ref, v_ref, seen_ref, g_ref, z_ref, delta_ref, dq_ref = refs
    block = options.block
    first = pl.program_id(0) * block
    q, grad, log_sum, delta = q_ref[...], g_ref[...], z_ref[...], delta_ref[...]

    def step(index: jax.Array, dq: jax.Array) -> Any:
        at = pl.ds(index * block, block)
        k = k_ref[at, :]
        seen = None if seen_ref is None else seen_ref[:, at]
        logits, slope = _logits(q, k, seen, first, index * block, options)
        d_logits = jnp.exp(logits - log_sum[:, None]) * (_dot(grad, v_ref[at, :].T) - delta[:, None]) * slope
        return dq + _dot(d_logits.astype(k.dtype), k)

    begin = jnp.zeros(q.shape, jnp.float32)
    dq_ref[...] = jax.lax.fori_loop(0, _end(k_ref.shape[0], options), step, begin).astype(dq_ref.dtype)


def _key_kernel(*refs: Any, options: _Options) -> None:
    """Compute the gradients of one block of keys and values, in a loop over blocks of queries."""
    from jax.experimental import pallas as pl

    q_ref, k_ref, v_ref, seen_ref, g_ref, z_ref, delta_ref, dk_ref, dv_ref = refs
    block = options.block
    first = pl.program_id(0) * block
    k, v = k_ref[...], v_ref[...]

    def step(index: jax.Array, carry: tuple[jax.Array, ...]) -> Any:
        dk, dv = carry
        at = pl.ds(index * block, block)
        q, grad = q_ref[at, :], g_ref[at, :]
        seen = None if seen_ref is None else seen_ref[at, :]
        logits, slope = _logits(q, k, seen, index * block, first, options)
        probs = jnp.exp(logits - z_ref[at][:, None])
        d_logits = probs * (_dot(grad, v.T) - delta_ref[at][:, None]) * slope
        return dk + _dot(d_logits.astype(q.dtype).T, q), dv + _dot(probs.astype(grad.dtype).T, grad)

    empty = jnp.zeros(k.shape, jnp.float32)
    begin = pl.program_id(0) if options.causal else 0  # earlier queries do not attend to these keys
    dk, dv = jax.lax.fori_loop(begin, q_ref.shape[0] // block, step, (empty, empty))
    dk_ref[...], dv_ref[...] = dk.astype(dk_ref.dtype), dv.astype(dv_ref.dtype)


def _logits(
    q: jax.Array, k: jax.Array, seen: jax.Array | None, first_query: jax.Array, first_key: jax.Array, options: _Options
) -> tuple[Any, Any]:
    """Return the capped logits of a block, very low where masked, and their derivatives by the plain logits."""
    plain = _dot(q, k.T)
    bent = jnp.tanh(plain / options.cap) if options.cap else 0.0
    logits = options.cap * bent if options.cap else plain
    if options.causal:
        queries = first_query + jnp.arange(options.block)
        keys = first_key + jnp.arange(options.block)
        logits = jnp.where(queries[:, None] >= keys[None, :], logits, lowest())
    if seen is not None:
        logits = jnp.where(seen != 0, logits, lowest())
    return logits, 1.0 - bent * bent


def _end(keys: int, options: _Options) -> Any:
    """Return the number of blocks of keys for this program's block of queries."""
    from jax.experimental import pallas as pl

    return pl.program_id(0) + 1 if options.causal else keys // options.block


def _dot(left: jax.Array, right: jax.Array) -> Any:
    return jax.lax.dot(left, right, preferred_element_type=jnp.float32)


# ---- for plans


@jax.custom_vjp
def _imitated(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    return query + jnp.mean(key + value, axis=(1, 2), keepdims=True)


def _imitated_forward(query: jax.Array, key: jax.Array, value: jax.Array) -> tuple[Any, Any]:
    out = query + jnp.mean(key + value, axis=(1, 2), keepdims=True)
    return out, (query, key, value, out, jnp.sum(out.astype(jnp.float32), axis=-1))


def _imitated_backward(kept: tuple[jax.Array, ...], grad: jax.Array) -> tuple[Any, Any, Any]:
    query, key, value, out, log_sum = kept
    ones = jnp.mean(grad * out * log_sum[..., None].astype(grad.dtype), axis=(1, 2), keepdims=True)
    return grad * query, ones * key, ones * value


_imitated.defvjp(_imitated_forward, _imitated_backward)
