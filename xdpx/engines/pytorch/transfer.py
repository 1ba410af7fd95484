"""Between numpy batches on the host and tensors on the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor


def to_device(batch: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """Return the same batch with tensors on `device` for arrays; everything else stays as it is."""
    return {name: _moved(value, device) for name, value in batch.items()}


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Mapping):
        return to_device(value, device)
    if isinstance(value, np.ndarray) and value.dtype != object:
        value = torch.from_numpy(value if value.flags.writeable else value.copy())
        if device.type == "cuda":
            return value.pin_memory().to(device, non_blocking=True)
    return value.to(device) if isinstance(value, Tensor) else value


def to_float(facts: Mapping[str, Any]) -> dict[str, float]:
    """Return plain floats, waiting once for all that is still on the device."""
    waiting = {name: value for name, value in facts.items() if isinstance(value, Tensor)}
    if not waiting:
        return {name: float(value) for name, value in facts.items()}
    values = torch.stack([value.detach().double() for value in waiting.values()]).tolist()
    arrived = dict(zip(waiting, values, strict=True))
    return {name: arrived[name] if name in arrived else float(value) for name, value in facts.items()}


def to_arrays(predictions: Mapping[str, Any]) -> dict[str, Any]:
    """Return numpy arrays for tensors with rows and floats for single numbers."""
    return {name: _arrived(value) for name, value in predictions.items()}


def _arrived(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    if value.dim() == 0:
        return float(value)
    value = value.detach()
    return (value.float() if value.is_floating_point() else value).cpu().numpy()
