"""Rematerialisation: named policies of which activations are stored for the backward pass, and which recomputed.

Layers name their tensors by `saved("out_proj", x)`; a policy says which names are stored. Names work under vmap and
scan, unlike rules on the shape of a product: a weight product of a stage gets a batch dim once the stages are vmapped,
so that "products without batch dims" would store nothing there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name

from xdpx.config.faults import THIS_RUN, ConfigError, Fault, did_you_mean, refusal

QUERY, KEY, VALUE, COMBINED_QKV = "query_proj", "key_proj", "value_proj", "combined_qkv_proj"
LOGITS, CONTEXT, OUT_PROJ = "attention_logits", "context", "out_proj"
FFN1, FFN2 = "ffn1", "ffn2"
ITERATION_INPUT, LAYER_OUTPUT = "iteration_input", "transformer_layer_out"

QKV = (QUERY, KEY, VALUE, COMBINED_QKV)
PROJECTIONS = (*QKV, OUT_PROJ, FFN1, FFN2)
"""Products with weights: those without batch dims, if nothing is vmapped."""

NAMES = (*QKV, LOGITS, CONTEXT, OUT_PROJ, FFN1, FFN2, ITERATION_INPUT, LAYER_OUTPUT)
"""All names in a transformer layer."""

Policy = Callable[..., Any]

_KEPT_NAMES: Mapping[str, tuple[str, ...]] = {
    "qkv_out_proj": (*QKV, OUT_PROJ),
    "qkv_out_proj_separate": (QUERY, KEY, VALUE, OUT_PROJ),
    "out_proj": (OUT_PROJ,),
    "context": (CONTEXT,),
    "context_and_out_proj": (CONTEXT, OUT_PROJ),
    "dot_for_mlperf_200b": (*QKV, CONTEXT, OUT_PROJ),
    "dot_except_logits": (*QKV, CONTEXT, OUT_PROJ, FFN1, FFN2),
    "dot_except_logits_ffn1": (*QKV, CONTEXT, OUT_PROJ, FFN2),
    "iteration_input": (ITERATION_INPUT,),
    "transformer_layer_output": (LAYER_OUTPUT,),
}
_BY_SHAPE: Mapping[str, str] = {
    "nothing": "nothing_saveable",
    "everything": "everything_saveable",
    "dot_only": "dots_saveable",
    "dot_with_no_batch_dim": "dots_with_no_batch_dims_saveable",
}
_UNDER_VMAP: Mapping[str, tuple[str, ...]] = {"dot_with_no_batch_dim": PROJECTIONS}

POLICIES = (*_BY_SHAPE, *_KEPT_NAMES)
"""All policies; the prefix `save_` and capitals are accepted, as in experiments: `SAVE_DOT_ONLY`."""


def saved(name: str, value: jax.Array) -> jax.Array:
    """Return the tensor with a name for policies; its value is unchanged.

    Raises:
        ConfigError: the name is not in NAMES, so that no policy could store it.
    """
    if name not in NAMES:
        raise refusal(f"saved({name!r})", "no policy has this name.", _choice(name, NAMES))
    marked: jax.Array = checkpoint_name(value, name)
    return marked


def policy_named(name: str, *, vmapped: bool = False) -> Policy:
    """Return the policy of a name, for `jax.checkpoint`.

    Args:
        name: one of POLICIES.
        vmapped: the block is vmapped over stages: `dot_with_no_batch_dim` then selects by names, with the same result.

    Raises:
        ConfigError: the name is unknown.
    """
    plain = name.lower().removeprefix("save_")
    if plain not in POLICIES:
        fault = Fault("checkpoint_policy", f"there is no policy '{name}'.", _choice(plain, POLICIES))
        raise ConfigError(THIS_RUN, [fault])
    names = _UNDER_VMAP.get(plain) if vmapped else None
    names = names or _KEPT_NAMES.get(plain)
    policies: Any = jax.checkpoint_policies
    chosen: Policy = policies.save_only_these_names(*names) if names else getattr(policies, _BY_SHAPE[plain])
    return chosen


def keeps_everything(name: str) -> bool:
    """Return whether a policy recomputes nothing, so that the block needs no `jax.checkpoint`."""
    return name.lower().removeprefix("save_") == "everything"


def _choice(name: str, known: tuple[str, ...]) -> str:
    return did_you_mean(name, known, f"Use one of: {', '.join(known)}.")
