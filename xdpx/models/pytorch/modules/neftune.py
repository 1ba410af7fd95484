"""NEFTune: noise on the embeddings while a language model is fine-tuned."""

from __future__ import annotations

from math import inf
from typing import Self

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from xdpx.models.pytorch.preparing import bare


def attach(model: nn.Module, alpha: float) -> Handle:
    """Add uniform noise in +-alpha/sqrt(T*H) to the input embeddings (..., T, H) whenever the model is in training.

    Args:
        model: Has `get_input_embeddings`; it may be wrapped.
        alpha: Size of the noise, > 0; the paper uses 5 to 15.

    Returns:
        The handle that removes the noise: `with attach(model, 5.0): ...`, or `.remove()`.

    Raises:
        ValueError: `alpha` is not above 0, or infinite.
        AttributeError: The model has no `get_input_embeddings`.

    Source: Jain et al., "NEFTune: Noisy Embeddings Improve Instruction Finetuning", ICLR 2024, algorithm 1.
    """
    if not 0 < alpha < inf:
        raise ValueError(f"neftune_noise_alpha: is {alpha}. Use a number above 0, e.g. 5.0, or None for no noise.")
    embedding = _embedding_of(bare(model))
    embedding.__dict__["neftune_noise_alpha"] = alpha
    return Handle(embedding, embedding.register_forward_hook(_Noise()))


class Handle:
    """The noise on one embedding. Used as a context manager, it is removed at the end, also after an exception."""

    def __init__(self, embedding: nn.Module, hook: RemovableHandle) -> None:
        self._embedding = embedding
        self._hook = hook

    def remove(self) -> None:
        """Remove the noise. May be called repeatedly."""
        self._hook.remove()
        self._embedding.__dict__.pop("neftune_noise_alpha", None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class _Noise:
    """The hook. The magnitude is cached per sequence length, computed in float32 as in the original."""

    def __init__(self) -> None:
        self._size: dict[tuple[float, int], float] = {}

    def __call__(self, embedding: nn.Module, _: object, output: Tensor) -> Tensor:
        if not embedding.training:
            return output
        key = float(embedding.neftune_noise_alpha), output.shape[-2] * output.shape[-1]  # type: ignore[arg-type]
        size = self._size.get(key)
        if size is None:
            size = self._size[key] = float(key[0] / torch.sqrt(torch.tensor(key[1])))
        return output + torch.empty_like(output, requires_grad=False).uniform_(-size, size)


def _embedding_of(model: nn.Module) -> nn.Module:
    found: object = None
    cause: Exception | None = None
    try:
        found = model.get_input_embeddings()  # type: ignore[operator]
    except (AttributeError, NotImplementedError) as error:
        cause = error
    if isinstance(found, nn.Module):
        return found
    raise AttributeError(
        f"neftune_noise_alpha: {type(model).__name__} does not say which are its embeddings. Give it a method "
        "get_input_embeddings() that returns the nn.Embedding, or leave neftune_noise_alpha out."
    ) from cause
