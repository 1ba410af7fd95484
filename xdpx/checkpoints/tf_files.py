"""Read the variables of TensorFlow checkpoints and SavedModels, without running code from them."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from xdpx.config import extras
from xdpx.config.faults import first_line
from xdpx.utils import io

if TYPE_CHECKING:
    from torch import Tensor

INDEX = ".index"
"""Suffix of the file that lists the variables of a checkpoint; their values are in files beside it."""
PROGRAM = "saved_model.pb"
VARIABLES = "variables/variables.index"
"""Index file of the variables of a SavedModel."""
_PART = re.compile(r"\.(index|meta|data-\d+-of-\d+)$")
_OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"
"""Key of the object graph in checkpoints of TensorFlow 2, which maps object paths to names of variables."""


class NotWhole(OSError):
    """A TensorFlow checkpoint is incomplete or damaged."""


def index_of(path: str) -> str:
    """Return the index file of a checkpoint.

    Args:
        path: the prefix of a checkpoint, any of its files, the folder of a SavedModel, or a folder with exactly one
            checkpoint.

    Raises:
        FileNotFoundError: there is none; the message names the files that were searched for.
    """
    prefix = _PART.sub("", path.rstrip("/"))
    if io.isfile(prefix + INDEX):
        return prefix + INDEX
    if io.isfile(io.join(path, PROGRAM)):
        if io.isfile(io.join(path, VARIABLES)):
            return io.join(path, VARIABLES)
        raise FileNotFoundError(f"'{path}' is a SavedModel without variables: there is no {VARIABLES}.")
    if io.isdir(path):
        found = sorted(each for each in io.listdir(path, full_path=True) if each.endswith(INDEX))
        if len(found) == 1:
            return str(found[0])
        names = ", ".join(io.name(each).removesuffix(INDEX) for each in found) or "none"
        raise FileNotFoundError(f"'{path}' contains no {PROGRAM}, and not one checkpoint but: {names}.")
    raise FileNotFoundError(f"'{prefix}{INDEX}' does not exist, and '{path}' is not a folder of a SavedModel.")


def is_there(path: str) -> bool:
    """Return whether a path names a checkpoint or SavedModel of TensorFlow."""
    try:
        index_of(path)
    except (OSError, ValueError):
        return False
    return True


def read(index: str) -> dict[str, Tensor]:
    """Return the numeric variables of a checkpoint by name; float16 and bfloat16 become float32.

    Args:
        index: path returned by `index_of`, local or remote.

    Raises:
        ConfigError: TensorFlow is not installed.
        NotWhole: a file is missing, truncated or not part of a checkpoint.
    """
    tf = extras.tensorflow("from_tf", "is true")
    with tempfile.TemporaryDirectory() as spare:
        try:
            reader = tf.train.load_checkpoint(_local_prefix(index, spare))
            kept = {name: kind for name, kind in reader.get_variable_to_dtype_map().items() if _is_number(kind)}
            names = _own_names(reader)
            return {names.get(key, key): _tensor(reader.get_tensor(key)) for key in kept if names.get(key, key)}
        except (tf.errors.OpError, ValueError, RuntimeError, IndexError) as error:  # the last: values are cut off
            reason = first_line(error).rstrip(".")
            raise NotWhole(f"{index}: is not a complete checkpoint of TensorFlow ({reason}). Copy it again.") from error


def _local_prefix(index: str, spare: str) -> str:
    """Return the local prefix of a checkpoint; the files of a remote one are copied to `spare`."""
    prefix = index.removesuffix(INDEX)
    if io.islocal(index):
        return str(io.local(index)).removesuffix(INDEX)
    name = io.name(prefix)
    for path in io.listdir(io.parent(prefix), full_path=True):
        if io.name(path) == name + INDEX or io.name(path).startswith(f"{name}.data-"):
            io.copy(path, io.join(spare, io.name(path)))
    return io.join(spare, name)


def _is_number(kind: Any) -> bool:
    return bool(kind.is_floating or kind.is_integer or kind.is_bool)


def _tensor(value: Any) -> Tensor:
    import numpy as np
    import torch

    array = np.array(value)  # a copy that may be written to
    narrow = array.dtype.kind not in "iub" and array.dtype != np.float64  # bfloat16 has kind "V": not NumPy's own
    return torch.from_numpy(array.astype(np.float32) if narrow else array)


def _own_names(reader: Any) -> Mapping[str, str]:
    """Return {key: name} of variables stored by object path (TensorFlow 2); the name of optimizer slots is ''.

    TensorFlow 2 allows one name for several variables; those keep their keys, which differ.
    """
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    if not reader.has_tensor(_OBJECTS):
        return {}
    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    graph.ParseFromString(reader.get_tensor(_OBJECTS))
    slots = {slot.slot_variable_node_id for node in graph.nodes for slot in node.slot_variables}
    variables = {
        each.checkpoint_key: (number, each) for number, node in enumerate(graph.nodes) for each in node.attributes
    }
    counts = Counter(each.full_name for number, each in variables.values() if number not in slots)
    return {
        key: "" if number in slots else each.full_name if counts[each.full_name] == 1 else key
        for key, (number, each) in variables.items()
    }
