"""Tables of weights on the disk, in Hugging Face format: numpy arrays by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


def read_table(source: str, read_weights: Callable[[str], Mapping[str, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """Return the table of a file or folder: safetensors or PyTorch's own, whole or in shards, on any path.

    Args:
        source: a file, or a folder in Hugging Face format.
        read_weights: reads a file of either kind without running code from it (checkpoints/trusted.py has it).

    Raises:
        ConfigError: there are no weights.
    """
    import torch

    from xdpx.models.pytorch import weights

    found = weights.read(source, read_weights)
    # numpy has no bfloat16; float32 holds every one of its numbers.
    return {name: (v.float() if v.dtype == torch.bfloat16 else v).numpy() for name, v in found.items()}
