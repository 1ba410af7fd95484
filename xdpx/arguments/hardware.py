"""What the accelerator at hand can do; asked only when an argument needs it."""

from __future__ import annotations


def has_bf16() -> bool:
    """Whether there is an accelerator that computes in bfloat16."""
    import torch

    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported())
    if torch.backends.mps.is_available():
        return bool(torch.backends.mps.is_macos_or_newer(14, 0))
    other = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    asked = getattr(getattr(torch, other.type, None), "is_bf16_supported", None) if other else None
    return other is not None and (asked is None or bool(asked()))


def has_tf32() -> bool:
    """Whether there is an NVIDIA GPU with TF32: Ampere or newer."""
    import torch

    return torch.cuda.is_available() and torch.version.cuda is not None and torch.cuda.get_device_capability()[0] >= 8


def set_tf32(allowed: bool) -> None:
    """Let float32 products be computed in TF32, or not, from now on in this process."""
    import torch

    # torch.backends.fp32_precision would do both, and makes every later reading of allow_tf32 an error
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed
