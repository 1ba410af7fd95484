"""Sharded checkpoints: every process writes its shards, and any number of processes can read them.

`<folder>/pytorch_model_fsdp_0/*.safetensors` holds the weights by name and `<folder>/optimizer_0/*.safetensors` the
optimizer's tensors as `<index of the parameter>.<name>`, each shard with its place in the whole; the rest of the
optimizer's state is in `<folder>/optimizer_0/groups.json`. Written by torch's distributed checkpoints (DCP) in their
safetensors layout: their other layout starts with a pickle, which may run code when it is read.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from xdpx.engines.pytorch import collectives
from xdpx.engines.pytorch.strategies.states import is_shard, parameters_of, refuse_other_groups
from xdpx.utils import io

if TYPE_CHECKING:
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

MODEL = "pytorch_model_fsdp_0"
OPTIMIZER = "optimizer_0"
GROUPS = "groups.json"
PICKLED = ".metadata"
"""Folders are named as in the original (Transformers); in its checkpoints, `.metadata` describes the shards."""


def save(folder: str, model: nn.Module, optimizer: Optimizer | None = None) -> None:
    """Write weights, and the optimizer's state. On all processes.

    Args:
        folder: an existing local folder; with several machines, one that all of them share.
        model: not wrapped; sharded or whole.
        optimizer: None writes no optimizer state.

    Raises:
        OSError: the disk is full, or fails otherwise.
    """
    _write(io.join(folder, MODEL), _weights_of(model))
    if optimizer is None:
        return
    state = optimizer.state_dict()
    tensors: dict[str, Tensor] = {}
    rest: dict[str, Any] = {}
    for number, kept in state["state"].items():
        for name, value in kept.items():
            into = tensors if isinstance(value, Tensor) and value.dim() > 0 else rest
            into[f"{number}.{name}"] = value
    _write(io.join(folder, OPTIMIZER), tensors)
    if collectives.rank() == 0:
        with io.open(io.join(folder, OPTIMIZER, GROUPS), "w") as file:
            json.dump({"param_groups": state["param_groups"], "values": rest}, file, default=_written, indent=1)
    collectives.barrier()


def load(folder: str, model: nn.Module | None = None, optimizer: Optimizer | None = None) -> None:
    """Load what `save` wrote into the shards that this process holds now. On all processes.

    Args:
        folder: a local folder that `save` wrote to.
        model: not wrapped; None reads no weights.
        optimizer: None reads no optimizer state.

    Raises:
        FileNotFoundError: there is no such checkpoint.
        RuntimeError: it is of another model, or damaged.
        ValueError: it is of another optimizer.
    """
    if model is not None:
        weights = _weights_of(model)
        _refuse_other_weights(weights, _sizes(io.join(folder, MODEL)), folder)
        _read(io.join(folder, MODEL), weights)
    if optimizer is not None:
        _load_optimizer(io.join(folder, OPTIMIZER), optimizer)


def read_whole(folder: str) -> dict[str, Tensor]:
    """Return the whole weights of a sharded checkpoint, on the host. Needs no other process.

    Raises:
        FileNotFoundError: there is no such checkpoint.
        RuntimeError: it is damaged.
    """
    path = io.join(folder, MODEL)
    weights = {name: torch.empty(each.size, dtype=each.properties.dtype) for name, each in _sizes(path).items()}
    _read(path, weights, alone=True)
    return weights


def is_sharded(folder: str) -> bool:
    """Return whether a checkpoint folder holds sharded weights."""
    return io.isdir(io.join(folder, MODEL))


def has_optimizer(folder: str) -> bool:
    """Return whether a checkpoint folder holds a sharded optimizer state."""
    return io.isdir(io.join(folder, OPTIMIZER))


def _weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a model by name; tied ones once, under their first name."""
    seen: set[int] = set()
    found = {}
    for name, value in model.state_dict(keep_vars=True).items():
        if isinstance(value, Tensor) and id(value) not in seen:
            seen.add(id(value))
            found[name] = value.detach()
    return found


def _load_optimizer(path: str, optimizer: Optimizer) -> None:
    sizes = _sizes(path, optional=True)
    with io.open(io.join(path, GROUPS), "r") as file:
        saved = json.load(file)
    refuse_other_groups(optimizer, {"state": {}, "param_groups": saved["param_groups"]})
    parameters = parameters_of(optimizer)
    tensors = {name: _room_for(parameters[_number(name)], each) for name, each in sizes.items()}
    _read(path, tensors)
    state: dict[int, dict[str, Any]] = {}
    for name, value in (*tensors.items(), *saved["values"].items()):
        state.setdefault(_number(name), {})[name.partition(".")[2]] = _restored(value)
    groups = [
        {key: _restored(value, kind=type(own.get(key))) for key, value in group.items()}
        for own, group in zip(optimizer.param_groups, saved["param_groups"], strict=True)
    ]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _room_for(parameter: Tensor, saved: TensorStorageMetadata) -> Tensor:
    """Return a tensor to read into, sharded like its parameter if it has the same shape."""
    dtype = saved.properties.dtype
    if is_shard(parameter) and parameter.shape == saved.size:
        return torch.zeros_like(parameter, dtype=dtype).detach()
    return torch.empty(saved.size, dtype=dtype)


def _number(name: str) -> int:
    return int(name.partition(".")[0])


def _written(value: object) -> dict[str, Any]:
    """Return a tensor with one element as JSON values, for `_restored`."""
    if isinstance(value, Tensor) and value.numel() == 1:
        return {"tensor": value.item(), "dtype": str(value.dtype).removeprefix("torch.")}
    raise TypeError(
        f"sharded checkpoint: the optimizer keeps a {type(value).__name__}, which is neither tensor nor plain value. "
        "Use state_dict_type FULL_STATE_DICT with it."
    )


def _restored(value: object, kind: type = object) -> Any:
    if isinstance(value, Mapping) and value.keys() == {"tensor", "dtype"}:
        return torch.tensor(value["tensor"], dtype=getattr(torch, value["dtype"]))
    return tuple(value) if kind is tuple and isinstance(value, list) else value


def _write(path: str, tensors: Mapping[str, Tensor]) -> None:
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save as write_shards

    if collectives.rank() == 0 and io.exists(path):
        io.rmtree(path)  # otherwise shards of a larger number of processes would remain
    collectives.barrier()
    writer = HuggingFaceStorageWriter(path, save_distributed=True)
    with _quiet():
        write_shards(dict(tensors), storage_writer=writer, no_dist=collectives.num_processes() == 1)


def _read(path: str, tensors: dict[str, Any], *, alone: bool = False) -> None:
    if not tensors:
        return
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load as read_shards

    alone = alone or collectives.num_processes() == 1
    with _quiet():
        read_shards(tensors, storage_reader=HuggingFaceStorageReader(path), no_dist=alone)


def _sizes(path: str, *, optional: bool = False) -> dict[str, Any]:
    """Return the metadata of the tensors in a folder of shards, by name.

    Raises:
        ValueError: it is not a local folder.
        FileNotFoundError: there are none.
        RuntimeError: a file is damaged.
    """
    if not io.islocal(path):
        raise ValueError(f"{path}: shards can only be read from a local folder. Copy the checkpoint here first.")
    if not io.isdir(path):
        raise FileNotFoundError(f"{path}: there is no such folder; a sharded checkpoint has it.")
    if io.exists(io.join(path, PICKLED)):
        raise RuntimeError(
            f"{path}: begins with a pickle ({PICKLED}), which may run code when it is read, and was not read. Turn it "
            "into safetensors where it was made: `accelerate merge-weights`, or save with FULL_STATE_DICT."
        )
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    try:
        found = dict(HuggingFaceStorageReader(path).read_metadata().state_dict_metadata)
    except Exception as error:  # safetensors has an error of its own, KeyError and JSON errors come as well
        raise RuntimeError(f"{path}: cannot be read ({error}). Use another checkpoint, or copy it again.") from error
    if not found and not optional:
        raise FileNotFoundError(
            f"{path}: contains no shards (*.safetensors). Use another checkpoint, or copy it again."
        )
    return found


def _refuse_other_weights(own: Mapping[str, Tensor], saved: Mapping[str, TensorStorageMetadata], folder: str) -> None:
    faults = [f"{name} is not in the checkpoint" for name in own.keys() - saved.keys()]
    faults += [f"{name} is not in the model" for name in saved.keys() - own.keys()]
    faults += [
        f"{name} is {tuple(saved[name].size)} in the checkpoint and {tuple(value.shape)} in the model"
        for name, value in own.items()
        if name in saved and saved[name].size != value.shape
    ]
    if faults:
        listed = "\n  ".join(sorted(faults)[:8])
        raise RuntimeError(
            f"{folder}: these are the weights of another model ({len(faults)} differences):\n  {listed}\n"
            "Use the model that they were saved with."
        )


@contextmanager
def _quiet() -> Generator[None]:
    """Suppress warnings of torch's distributed checkpoints, such as that there is only one process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="torch.distributed.checkpoint")
        yield
