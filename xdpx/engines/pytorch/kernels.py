"""Which kernels compute: in TF32, the same bits each time, compiled. Said once, for every door."""

from __future__ import annotations

import os

import torch
from torch import nn

from xdpx.config.faults import nearest

DETERMINISTIC_ENVIRONMENT = {
    "CUDA_LAUNCH_BLOCKING": "1",
    "CUBLAS_WORKSPACE_CONFIG": ":16:8",
    "FLASH_ATTENTION_DETERMINISTIC": "1",
}
"""What libraries of a GPU read, each when it is first used; as the original sets them."""


def use_tf32(wanted: bool | None) -> None:
    """Let products and convolutions of float32 be computed in TF32, or forbid it; None leaves PyTorch as it is set."""
    if wanted is not None:
        torch.set_float32_matmul_precision("high" if wanted else "highest")
        torch.backends.cudnn.allow_tf32 = wanted


def prefer_deterministic() -> None:
    """Choose kernels that give the same bits twice, where there are such; torch warns where there are none."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False


def require_deterministic() -> None:
    """Compute with kernels that give the same bits twice; from now on torch refuses operations that have none."""
    os.environ.update(DETERMINISTIC_ENVIRONMENT)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def compile_in_place(
    model: nn.Module, backend: str | None = None, mode: str | None = None, *, dynamic: bool | None = None
) -> nn.Module:
    """Compile the calls of a model (wrappers included) and return the same object, its weights under the same names.

    Args:
        model: What the training calls.
        backend: One of `torch.compiler.list_backends()`; inductor when None.
        mode: `default`, `reduce-overhead` or `max-autotune`, of inductor only.
        dynamic: Compile once for all shapes; None does so where a shape has changed.

    Raises:
        ValueError: There is no such backend or mode.
    """
    backend = backend or "inductor"
    known = torch.compiler.list_backends(exclude_tags=())
    if backend not in known:
        near = nearest(backend, known)
        hint = f"Did you mean '{near}'? " if near else ""
        raise ValueError(f"torch_compile_backend: there is no '{backend}'. {hint}Use one of: {', '.join(known)}.")
    if mode is None:
        model.compile(backend=backend, dynamic=dynamic)
    elif mode in (modes := _modes()):
        model.compile(backend=backend, mode=mode, dynamic=dynamic)
    else:
        raise ValueError(f"torch_compile_mode: there is no '{mode}'. Use one of: {', '.join(modes)}.")
    return model


def _modes() -> list[str]:
    from torch import _inductor

    return sorted({"default", *_inductor.list_mode_options()})
