"""Attention with dropout, for training on a CPU. Letters: B batch, H heads, T positions, D features of a head.

torch's own kernels fall back to a slow path with dropout on attention weights: they draw a mask of Bernoulli numbers
and pass over (B, H, T, T) numbers about ten times in main memory. Here a few texts at a time are processed completely
while in cache, the mask is drawn as in `dropout.py`, and one tensor is saved for the backward pass: the weights,
negated where they were dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from xdpx.models.pytorch.modules.dropout import random_signs, scale_of

NAME = "xdpx"
NUMBERS_IN_CACHE = 1 << 20


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    dropout: float = 0.0,
    scaling: float | None = None,
    **more: Any,
) -> tuple[Tensor, None]:
    """Return attention's output (B, T, H, D), with the interface that Hugging Face models call.

    Only training with dropout on a CPU in float32 is computed here; everything else by torch's own kernels.
    """
    slow_elsewhere = dropout > 0.0 and query.device.type == "cpu" and query.dtype == torch.float32
    # Hugging Face takes a module that does not say so for causal, which encoders without padding are not.
    causal = bool(more.pop("is_causal", None) or getattr(module, "is_causal", False))
    if attention_mask is None:
        whole_keys = not causal
    else:
        whole_keys = attention_mask.shape[1] == 1 and attention_mask.stride(2) == 0
    if not slow_elsewhere or not whole_keys:
        found: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, is_causal=causal, **more
        )
        return found
    bias = None if attention_mask is None else _bias(attention_mask)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out: Tensor = DroppedAttention.apply(query * scale, key, value, bias, dropout)  # type: ignore[no-untyped-call]
    return out.transpose(1, 2), None


def _bias(mask_B1TT: Tensor) -> Tensor:
    """Return (B, 1, 1, T): 0 at real tokens, and the lowest float at padding."""
    lowest = torch.finfo(torch.float32).min
    return torch.zeros(mask_B1TT[:, :, :1].shape).masked_fill_(~mask_B1TT[:, :, :1], lowest)


class DroppedAttention(torch.autograd.Function):
    """dropout(softmax(query key' + bias)) value; the query is already scaled.

    Source of the backward pass: Dao et al., "FlashAttention", NeurIPS 2022, appendix B, without tiles along T.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, share: float) -> Tensor:
        """Return (B, H, T, D)."""
        batch, heads, length, _ = query.shape
        signed = torch.empty(batch, heads, length, key.shape[2])
        out = torch.empty(batch, length, heads, value.shape[3]).transpose(1, 2)
        for part in _parts(signed):
            scores = torch.matmul(query[part], key[part].transpose(2, 3))
            if bias is not None:
                scores.add_(bias[part])
            weights = torch.softmax(scores, dim=-1)
            torch.mul(weights, random_signs(weights.numel(), share).view(weights.shape), out=signed[part])
            kept = torch.clamp_min(signed[part], 0.0, out=scores)
            torch.mul(torch.matmul(kept, value[part]), scale_of(share), out=out[part])
        ctx.save_for_backward(query, key, value, signed, out)
        ctx.share = share
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of query, key and value."""
        query, key, value, signed, out = ctx.saved_tensors
        grads = tuple(torch.empty_like(each) for each in (query, key, value))
        grad_query, grad_key, grad_value = grads
        mean_grad = (grad_out * out).sum(dim=-1, keepdim=True)
        for part in _parts(signed):
            grad = grad_out[part] * scale_of(ctx.share)
            kept = torch.clamp_min(signed[part], 0.0)
            grad_value[part] = torch.matmul(kept.transpose(2, 3), grad)
            grad_scores = torch.matmul(grad, value[part].transpose(2, 3)).mul_(kept)
            weights = torch.abs(signed[part], out=kept)
            grad_scores.addcmul_(weights, mean_grad[part], value=-1.0)
            grad_query[part] = torch.matmul(grad_scores, key[part])
            grad_key[part] = torch.matmul(grad_scores.transpose(2, 3), query[part])
        return *grads, None, None


def _parts(scores_BHTT: Tensor) -> Iterator[slice]:
    """Return slices of the batch, so that the scores of each part fit in the cache."""
    step = max(1, NUMBERS_IN_CACHE // max(1, scores_BHTT[0].numel()))
    return (slice(begin, begin + step) for begin in range(0, len(scores_BHTT), step))


def register() -> str:
    """Register this attention with Hugging Face models; return the name to configure."""
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    return NAME
