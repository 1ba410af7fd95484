"""Settings of torch shared by all ways to train: seeds, determinism, TF32, compilation."""

from __future__ import annotations

import os

import torch
from torch import nn

from xdpx.config.faults import did_you_mean
from xdpx.utils.seeds import seed_all

DETERMINISTIC_ENVIRONMENT = {
    "CUDA_LAUNCH_BLOCKING": "1",
    "CUBLAS_WORKSPACE_CONFIG": ":16:8",
    "FLASH_ATTENTION_DETERMINISTIC": "1",
}
"""Environment variables that GPU libraries read at their first use; values as in the original (Transformers)."""


def set_seed(seed: int, deterministic: bool = False) -> None:
    """Seed the generators of Python, NumPy and torch; `deterministic` makes torch use deterministic algorithms.

    The random numbers are the same as after `transformers.set_seed`, which is not called because importing it takes
    seconds, even if no model of that library is trained.
    """
    seed_all(seed)
    if deterministic:
        torch.use_deterministic_algorithms(True)


def seed_training(seed: int, *, full_determinism: bool) -> None:
    """Seed at the start of training; with `full_determinism` torch raises for nondeterministic operations."""
    set_seed(seed)
    if full_determinism:
        require_deterministic()


def use_tf32(wanted: bool | None) -> None:
    """Allow or forbid TF32 for float32 matrix products and convolutions; None leaves PyTorch's setting."""
    if wanted is not None:
        torch.set_float32_matmul_precision("high" if wanted else "highest")
        torch.backends.cudnn.allow_tf32 = wanted


def prefer_deterministic() -> None:
    """Use deterministic kernels where they exist; torch warns about operations that have none."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False


def require_deterministic() -> None:
    """Use only deterministic kernels; from now on torch raises for operations that have none."""
    os.environ.update(DETERMINISTIC_ENVIRONMENT)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def compile_in_place(
    model: nn.Module, backend: str | None = None, mode: str | None = None, *, dynamic: bool | None = None
) -> nn.Module:
    """Compile the calls of a model (wrappers included) and return the same object, its weights under the same names.

    Args:
        model: The module that training calls.
        backend: One of `torch.compiler.list_backends()`; inductor when None.
        mode: `default`, `reduce-overhead` or `max-autotune`, of inductor only.
        dynamic: Compile once for all shapes; None does so where a shape has changed.

    Raises:
        ValueError: There is no such backend or mode.
    """
    backend = backend or "inductor"
    known = torch.compiler.list_backends(exclude_tags=())
    if backend not in known:
        remedy = did_you_mean(backend, known, rest=f"Use one of: {', '.join(known)}.")
        raise ValueError(f"torch_compile_backend: there is no '{backend}'. {remedy}")
    if mode is not None:
        from torch import _inductor

        modes = sorted({"default", *_inductor.list_mode_options()})
        if mode not in modes:
            raise ValueError(f"torch_compile_mode: there is no '{mode}'. Use one of: {', '.join(modes)}.")
    model.compile(backend=backend, mode=mode, dynamic=dynamic)
    return model
