"""Capture the activations of an encoder: its hidden states, and the queries, keys and values of each layer.

The network is unchanged except while its activations are captured.
B texts, T positions, A heads, D features of a head, H width.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from xdpx.config.faults import ConfigError, refusal
from xdpx.models.pytorch.modules import attention

NAME = "xdpx_watched"


class Heads(NamedTuple):
    """Inputs of a layer's attention, (B, A, T, D) each."""

    query: Tensor
    key: Tensor
    value: Tensor


class Activations(NamedTuple):
    """Activations of a network in one pass.

    Attributes:
        output: of the network.
        hidden: the embeddings, then the output of each layer, (B, T, H) each.
        heads: of each layer.
    """

    output: Any
    hidden: tuple[Tensor, ...]
    heads: tuple[Heads, ...]


_captured: ContextVar[list[Heads] | None] = ContextVar("_captured", default=None)


def capture_activations(model: nn.Module, net_input: Mapping[str, Any]) -> Activations:
    """Run a model once, and return the activations of its encoder.

    Args:
        model: one with an encoder of transformers as attribute `bert`.
        net_input: its inputs.

    Raises:
        ConfigError: it has no such encoder, or the attention of its encoder cannot be captured.
    """
    encoder: Any = getattr(model, "bert", None)
    if encoder is None:
        raise _blind(f"has no attention layers to capture: {type(model).__name__}.")
    states: list[tuple[Tensor, ...]] = []
    hooks = (
        encoder.register_forward_pre_hook(
            lambda module, inputs, options: (inputs, {**options, "output_hidden_states": True}), with_kwargs=True
        ),
        encoder.register_forward_hook(lambda module, inputs, output: states.append(output.hidden_states)),
    )
    try:
        with _capturing(encoder.config) as heads:
            output = model(**net_input)
    finally:
        for hook in hooks:
            hook.remove()
    if not states or not heads:
        raise _blind(f"is of the type '{encoder.config.model_type}', whose attention cannot be captured.")
    return Activations(output, states[0], tuple(heads))


def capturing_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, None]:
    """Return the result of `attend`, and record its inputs."""
    heads = _captured.get()
    if heads is not None:  # None while activations are recomputed in the backward pass
        heads.append(Heads(query, key, value))
    return attention.attend(module, query, key, value, attention_mask, **options)


@contextmanager
def _capturing(config: Any) -> Generator[list[Heads]]:
    AttentionInterface.register(NAME, capturing_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    before, heads = config._attn_implementation, list[Heads]()
    token, config._attn_implementation = _captured.set(heads), NAME
    try:
        yield heads
    finally:
        _captured.reset(token)
        config._attn_implementation = before


def _blind(problem: str) -> ConfigError:
    remedy = "Use encoders such as bert, roberta, electra, albert or modernbert."
    return refusal("model", problem, remedy)
