"""Tables of weights on the disk, in Hugging Face format: numpy arrays by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from xdpx.utils import io

WEIGHTS = "model.safetensors"


def read_table(source: str, read_weights: Callable[[str], Mapping[str, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    """Give the table of a file or folder: safetensors or PyTorch's own, whole or in shards, on any path.

    Args:
        source: a file, or a folder in Hugging Face format.
        read_weights: reads a file of PyTorch without running code from it (checkpoints/trusted.py has it).

    Raises:
        ConfigError: there are no weights.
    """
    import torch

    from xdpx.models.pytorch import weights

    found = weights.read(source, read_weights)
    # numpy has no bfloat16; float32 holds every one of its numbers.
    return {name: (v.float() if v.dtype == torch.bfloat16 else v).numpy() for name, v in found.items()}


def write_table(folder: str, table: Mapping[str, Any]) -> None:
    """Write `model.safetensors` into a folder, as `from_pretrained` reads it.

    Args:
        folder: on any path.
        table: arrays by name, as `Exchange.give` makes it.
    """
    from safetensors.numpy import save

    arrays = {name: np.ascontiguousarray(value) for name, value in table.items()}
    with io.open(io.join(folder, WEIGHTS), "wb") as file:
        file.write(save(arrays, metadata={"format": "pt"}))
