"""Capabilities of the accelerator, queried only if an argument needs them, and the options of compilation."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from xdpx.trainer.arguments.fields import Fields
from xdpx.trainer.arguments.values import truth


def has_bf16() -> bool:
    """Return whether there is an accelerator that computes in bfloat16."""
    import torch

    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    if torch.backends.mps.is_available():
        return bool(torch.backends.mps.is_macos_or_newer(14, 0))
    other = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    asked = getattr(getattr(torch, other.type, None), "is_bf16_supported", None) if other else None
    return other is not None and (asked is None or bool(asked()))


def has_tf32() -> bool:
    """Return whether there is an NVIDIA GPU with TF32: Ampere or newer."""
    import torch

    return torch.cuda.is_available() and torch.version.cuda is not None and torch.cuda.get_device_capability()[0] >= 8


@dataclass(frozen=True)
class CompileOptions:
    """Arguments of torch.compile, by its own names."""

    backend: str = "inductor"
    mode: str | None = None
    fullgraph: bool = False
    dynamic: bool | None = None


def compile_options(arguments: Fields, environment: Mapping[str, str] = os.environ) -> CompileOptions | None:
    """Return how to compile the model, by the arguments or else the launcher's environment; None: do not compile."""
    if arguments.torch_compile:
        return CompileOptions(arguments.torch_compile_backend or "inductor", arguments.torch_compile_mode)
    backend = environment.get("ACCELERATE_DYNAMO_BACKEND", "no").lower()
    if backend in {"no", "none", ""}:
        return None
    mode = environment.get("ACCELERATE_DYNAMO_MODE", "default")
    return CompileOptions(
        backend=backend,
        mode=None if mode == "default" else mode,
        fullgraph=truth(environment.get("ACCELERATE_DYNAMO_USE_FULLGRAPH", "false")),
        dynamic=truth(environment.get("ACCELERATE_DYNAMO_USE_DYNAMIC", "false")) or None,
    )
