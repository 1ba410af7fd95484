"""Read weights in Hugging Face format from disk: numpy arrays by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


def read_table(source: str, read_weights: Callable[[str], Mapping[str, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """Return the weights of a file or folder: safetensors or PyTorch, whole or sharded, local or remote.

    Args:
        source: a file, or a folder in Hugging Face format.
        read_weights: reads a file of either kind without unpickling (checkpoints/trusted.py has it).

    Raises:
        ConfigError: there are no weights.
    """
    import torch

    from xdpx.models.pytorch import weights

    found = weights.read(source, read_weights)
    # numpy has no bfloat16; the conversion to float32 is exact.
    return {name: (v.float() if v.dtype == torch.bfloat16 else v).numpy() for name, v in found.items()}
