"""Find, read and load weights of other programs and of earlier runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from xdpx.config.faults import ConfigError, first_few, refusal
from xdpx.config.network_config import NAMES
from xdpx.logger import log
from xdpx.models.pytorch import google_names
from xdpx.utils import io

SINGLE_FILES = ("model.safetensors", "pytorch_model.bin")
SHARD_TABLES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
TF_INDEX = ".index"
TF_NAMES = (*NAMES, "albert_config.json")
POOLING, MODE = "1_Pooling/config.json", "pooling_mode_"
MOST_NAMES_SHOWN = 8
NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
"""The number of a layer in the name of a weight."""


def read(
    source: str, read_weights: Callable[[str], Mapping[str, Any]], *, table: Sequence[google_names.Row] = ()
) -> dict[str, Tensor]:
    """Return the named tensors of a file, or of a folder in Hugging Face format.

    Args:
        source: a `.safetensors` file, a torch file (a state dict, or one under the key `state_dict` or `model`), a
            folder with model.safetensors or pytorch_model.bin, whole or sharded, or the `.index` file of a TensorFlow
            checkpoint, whose names are converted to ours. Local or remote.
        read_weights: reads a file of any kind without unpickling.
        table: a user's map of TensorFlow names to ours.

    Raises:
        ConfigError: the source does not exist, or has no weights.
    """
    if not io.exists(source):
        raise _fault(f"is '{source}', which does not exist.", "Check the path; null starts from random weights.")
    found: dict[str, Tensor] = {}
    for path in _files_of(source):
        found |= _read_file(path, read_weights)
    return google_names.ours(found, table) if source.endswith(TF_INDEX) else found


def config_file(source: str) -> str | None:
    """Return the path of the config beside weights, or in their folder; None if there is none."""
    folder = source if io.isdir(source) else io.parent(source)
    folders = [folder]
    if source.endswith(TF_INDEX):  # a SavedModel has its variables in a subfolder, and extra files in `assets`
        folders += [above := io.parent(folder), io.join(above, "assets")]
    return next((path for each in folders for name in TF_NAMES if io.exists(path := io.join(each, name))), None)


def pooling_of(source: str) -> str | None:
    """Return how a model of sentence-transformers makes a vector of tokens: `first`, `mean`, or its own word.

    None if the folder of the weights does not say.
    """
    path = io.join(source if io.isdir(source) else io.parent(source), POOLING)
    if not io.isfile(path):
        return None
    values = read_table(path)
    marked = [name.removeprefix(MODE).removesuffix("_tokens") for name, value in values.items() if value is True]
    modes = [str(values["pooling_mode"])] if "pooling_mode" in values else marked
    return " and ".join({"cls": "first", "cls_token": "first"}.get(mode, mode) for mode in modes) or None


def take_over(
    model: nn.Module, found: Mapping[str, Tensor], *, strict_size: bool, source: str, in_part: bool = False
) -> list[str]:
    """Copy into `model` every tensor with a known name and shape; log missing, unexpected and mismatched ones.

    Args:
        model: the network.
        found: tensors by our names.
        strict_size: refuse weights of another size, and an encoder of which most is missing.
        source: where they come from, for messages.
        in_part: they are meant for a part of the network only.

    Returns:
        The names of the weights that keep their values: missing or of another size in the file.

    Raises:
        ConfigError: no tensor fits, or `strict_size` is true and a shape differs or most of the encoder is missing.
    """
    own = model.state_dict(keep_vars=True)
    mismatched = [name for name in found if name in own and own[name].shape != found[name].shape]
    fitting = [name for name in found if name in own and own[name].shape == found[name].shape]
    if mismatched and strict_size:
        told = (f"{name} {_size(found[name])} there, {_size(own[name])} here" for name in mismatched)
        sizes = first_few(told, MOST_NAMES_SHOWN)
        raise _fault(
            f"'{source}' contains weights of another size: {sizes}.",
            "Use the architecture and vocabulary of that file, or strict_size: false to leave them out.",
        )
    if not fitting:
        names = first_few(found, MOST_NAMES_SHOWN)
        raise _fault(f"'{source}' contains no weight of this model (it contains {names}).", "Name a matching file.")
    # A tied weight has two names, and is loaded if one of them is.
    loaded = {id(own[name]) for name in fitting}
    missing = [name for name, value in own.items() if id(value) not in loaded and name not in mismatched]
    if strict_size and not in_part:
        _refuse_a_fragment(own, missing, source)
    with torch.no_grad():
        for name in fitting:
            own[name].copy_(found[name])
    unexpected = [name for name in found if name not in own]
    _report(source, fitting, missing=missing, unexpected=unexpected, mismatched=mismatched)
    _tell_of_lost_layers(fitting, missing, source)
    return [*missing, *mismatched]


def _refuse_a_fragment(own: Mapping[str, Tensor], missing: Sequence[str], source: str) -> None:
    """Raise ConfigError if most of an encoder is missing, of its tensors and of its numbers: it would be random.

    Tensors alone are no measure (adapters are many, but small), nor are numbers (memories are few, but large).
    """
    encoder = {name: value.numel() for name, value in own.items() if is_encoder(name)}
    absent = [name for name in missing if name in encoder]
    numbers = sum(encoder[name] for name in absent)
    if 2 * len(absent) > len(encoder) and 2 * numbers > sum(encoder.values()):
        raise _fault(
            f"'{source}' lacks {len(absent)} of the {len(encoder)} weights of the encoder: "
            f"{first_few(absent, MOST_NAMES_SHOWN)}.",
            "Use the architecture of that file (num_hidden_layers, model_type); or strict_size: false for random ones.",
        )


def _tell_of_lost_layers(fitting: Sequence[str], missing: Sequence[str], source: str) -> None:
    """Warn of weights that are missing in some layers of a stack only: the file is cut, or of fewer layers."""
    of_any_layer = {NUMBER.sub("*", name) for name in fitting}
    lost = [name for name in missing if NUMBER.search(name) and NUMBER.sub("*", name) in of_any_layer]
    if lost:
        shown = first_few(lost, MOST_NAMES_SHOWN)
        problem = f"{source}: {_weights(lost)} of some layers are missing, and random at first: {shown}"
        log.warning(f"{problem}. Unless that is intended, fetch the model again, or use its number of layers.")


def is_encoder(name: str) -> bool:
    """Return whether a weight is needed for hidden states, unlike those of a pooler or a head."""
    return name.startswith("bert.") and not name.startswith("bert.pooler.")


FETCH = "Fetch the model again (git lfs pull, if it came by git), or name another."


def _files_of(source: str) -> list[str]:
    if not io.isdir(source):
        return [source]
    for name in SINGLE_FILES:
        if io.exists(io.join(source, name)):
            return [io.join(source, name)]
    for name in SHARD_TABLES:
        if io.exists(io.join(source, name)):
            table = read_table(io.join(source, name)).get("weight_map", {})
            return [io.join(source, shard) for shard in sorted(set(table.values()))]
    wanted = " or ".join(SINGLE_FILES)
    raise _fault(f"is the folder '{source}', which contains no {wanted}.", "Name a folder in Hugging Face format.")


def read_table(path: str) -> dict[str, Any]:
    """Return the content of a JSON file beside weights. Raises ConfigError if it is not an object."""
    try:
        with io.open(path) as file:
            found = json.load(file)
    except ValueError as error:
        raise _fault(f"has a '{path}' that is not JSON ({error}).", FETCH) from error
    if not isinstance(found, dict):
        raise _fault(f"has a '{path}' that contains no table.", FETCH)
    return found


def _read_file(path: str, read_weights: Callable[[str], Mapping[str, Any]]) -> dict[str, Tensor]:
    content = read_weights(path)
    for wrapper in ("state_dict", "model"):
        if isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    return {name: value for name, value in content.items() if isinstance(value, Tensor)}


def _report(source: str, fitting: list[str], **others: list[str]) -> None:
    log.info(f"{source}: {_weights(fitting)} loaded")
    for title, names in others.items():
        if names:
            log.info(f"{source}: {_weights(names)} {title}: {first_few(names, MOST_NAMES_SHOWN)}")


def _weights(names: list[str]) -> str:
    return f"{len(names)} weight{'s' * (len(names) != 1)}"


def _size(value: Tensor) -> str:
    return "x".join(map(str, value.shape)) or "1"


def _fault(problem: str, remedy: str) -> ConfigError:
    return refusal("pretrained_model", problem, remedy)
