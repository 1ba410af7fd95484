"""The weights of a model in a folder: safetensors, sharded if large, with everything that `from_pretrained` needs."""

from __future__ import annotations

import errno
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from xdpx.checkpoints import parts
from xdpx.checkpoints.foreign import shards
from xdpx.checkpoints.trusted import load_safetensors, load_tensors
from xdpx.config.faults import first_few
from xdpx.logger import log
from xdpx.utils import io
from xdpx.utils.owners import temporary_name

if TYPE_CHECKING:
    from torch import Tensor, nn

LARGEST_FILE = "50GB"
"""Larger weights are written in several files; the default of transformers."""
_ALIASES = "xdpx_aliases"


@dataclass(frozen=True)
class ModelFiles:
    """A model, and the files beside its weights.

    Attributes:
        model: any `torch.nn.Module`; one of transformers (or peft) is written by its `save_pretrained`.
        weights: written instead of the model's own, e.g. gathered from its shards.
        processing_class: a tokenizer or processor, written as well.
        largest_file: as `max_shard_size` of transformers: bytes, or text such as `5GB`.
    """

    model: Any
    weights: Mapping[str, Any] | None = None
    processing_class: Any = None
    largest_file: int | str = LARGEST_FILE

    def frozen(self) -> ModelFiles:
        """Copy the weights to the host, so that they can be written while training continues."""
        from xdpx.checkpoints.background import copied

        return replace(self, weights=copied(self.model.state_dict() if self.weights is None else self.weights))

    def write(self, folder: str) -> None:
        """Write all files into a folder, local or remote.

        Raises:
            OSError: the disk is full, or fails otherwise.
        """
        weights = dict(self.model.state_dict() if self.weights is None else self.weights)
        with _on_this_machine(folder) as place:
            try:
                if knows_its_files(self.model):
                    self.model.save_pretrained(place, state_dict=weights, max_shard_size=self.largest_file)
                else:
                    write_weights(place, weights, largest_file=self.largest_file)
                if self.processing_class is not None:
                    self.processing_class.save_pretrained(place)
            except Exception as error:
                raise _as_disk_error(error, folder) from error


@contextmanager
def _on_this_machine(folder: str) -> Generator[str]:
    """Yield a local folder for libraries that write only there; the files of a remote one are copied at the end."""
    if io.islocal(folder):
        io.makedirs(folder)
        yield folder
        return
    place = temporary_name(io.join(io.cache.spool(), "model"))
    io.makedirs(place)
    try:
        yield place
        io.copytree(place, folder)
    finally:
        io.remove(place)


def write_description(model: Any, processing_class: object, folder: str) -> None:
    """Write everything that `from_pretrained` needs except the weights, which are there as shards."""
    if hasattr(getattr(model, "config", None), "architectures"):  # save_pretrained sets it, but needs the weights
        model.config.architectures = [type(model).__name__.removeprefix("FSDP")]
    parts: list[Any] = [getattr(model, "config", None), getattr(model, "generation_config", None), processing_class]
    for each in parts:
        if hasattr(each, "save_pretrained"):
            each.save_pretrained(folder)


def knows_its_files(model: nn.Module) -> bool:
    """Return whether a model can save itself, as those of transformers and peft do."""
    from transformers import PreTrainedModel

    kinds = {f"{kind.__module__.partition('.')[0]}.{kind.__name__}" for kind in type(model).__mro__}
    return isinstance(model, PreTrainedModel) or "peft.PeftModel" in kinds


def _as_disk_error(error: Exception, folder: str) -> Exception:
    """Return an OSError for a disk error of safetensors, which is recognised only by its message."""
    text = str(error)
    if type(error).__name__ == "SafetensorError" and "os error" in text.lower():
        number = errno.ENOSPC if "space" in text.lower() else errno.EIO
        return OSError(number, text, folder)
    return error


def write_weights(folder: str, weights: Mapping[str, Any], *, largest_file: int | str = LARGEST_FILE) -> None:
    """Write `model.safetensors`, or shards and their index. Of tensors that share memory, one is written.

    Raises:
        ValueError: a value is not a tensor.
    """
    from huggingface_hub import split_torch_state_dict_into_shards
    from safetensors.torch import save_file

    strange = [name for name, value in weights.items() if not hasattr(value, "data_ptr")]
    if strange:
        kind = type(weights[strange[0]]).__name__
        raise ValueError(f"{strange[0]} in the state_dict is a {kind}. Only tensors can be saved: keep it elsewhere.")
    unique, aliases = without_aliases(weights)
    pattern = parts.WEIGHTS.replace(".safetensors", "{suffix}.safetensors")
    split = split_torch_state_dict_into_shards(unique, filename_pattern=pattern, max_shard_size=largest_file)
    metadata = {"format": "pt", **aliases}
    for file_name, names in split.filename_to_tensors.items():
        tensors = {name: unique[name].contiguous() for name in names}
        save_file(tensors, io.join(folder, file_name), metadata=metadata)
    if split.is_sharded:
        _write_index(folder, split)


def _write_index(folder: str, split: Any) -> None:
    import json

    index = {"metadata": dict(split.metadata), "weight_map": dict(split.tensor_to_filename)}
    with io.open(io.join(folder, parts.WEIGHTS_INDEX), "w") as file:
        file.write(json.dumps(index, indent=2, sort_keys=True) + "\n")


def without_aliases(weights: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Keep only the first name of each tensor that has several.

    Returns:
        (weights, {name left out: name kept}). Tensors whose memory overlaps only partly are copied.
    """
    kept: dict[str, Any] = {}
    aliases: dict[str, str] = {}
    first: dict[Any, str] = {}
    storages: set[int] = set()
    for name, tensor in weights.items():
        place = _place(tensor)
        if place in first and tensor.numel():
            aliases[name] = first[place]
            continue
        storage = tensor.untyped_storage().data_ptr()
        kept[name] = tensor.clone() if storage in storages and tensor.numel() else tensor
        first[place] = name
        storages.add(storage)
    return kept, aliases


def _place(tensor: Tensor) -> Any:
    return (tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())


# ---- read


def holds_weights(folder: str) -> bool:
    """Return whether there is a folder with weights, whole, sharded, or of adapters only."""
    there = any(io.exists(io.join(folder, name)) for name in parts.ANY_WEIGHTS)
    return there or (io.isdir(folder) and bool(_adapters(folder)))


def read_weights(folder: str) -> dict[str, Any]:
    """Return the weights in a folder by name, on the host.

    Raises:
        FileNotFoundError: there are none.
        OSError: they cannot be read completely.
    """
    for name in (parts.WEIGHTS, parts.OLD_WEIGHTS, parts.FULL_FSDP_WEIGHTS):
        path = io.join(folder, name)
        if io.isfile(path):
            return _read_file(path)
    for name in (parts.WEIGHTS_INDEX, parts.OLD_WEIGHTS_INDEX):
        path = io.join(folder, name)
        if io.isfile(path):
            return {key: value for file in shards(path) for key, value in _read_file(io.join(folder, file)).items()}
    raise FileNotFoundError(f"{folder}: contains no {parts.WEIGHTS}. Use a folder that a model was saved to.")


def _read_file(path: str) -> dict[str, Any]:
    loaded: dict[str, Any] = load_safetensors(path) if path.endswith(".safetensors") else load_tensors(path, mmap=True)
    return loaded


Apply = Callable[[Any, dict[str, Any]], tuple[list[str], list[str]]]


def load_model(model: nn.Module, folder: str, *, apply: Apply | None = None) -> None:
    """Load the weights in a folder into a model; log which are missing and which the model does not have.

    Args:
        model: unwrapped, as when it was saved.
        folder: local or remote.
        apply: loads weights into the model and returns (missing, unexpected) names; by default `load_state_dict`.

    Raises:
        FileNotFoundError: there are no weights.
        RuntimeError: a weight has another shape in the model.
    """
    if _is_adapter(folder) and hasattr(model, "load_adapter"):
        _load_adapter(model, folder)
        return
    put = apply or _put
    missing, unexpected = put(model, read_weights(folder))
    absent = _really_missing(model, missing)
    if (absent or unexpected) and (converted := _converted(model, folder)):
        # transformers saves some models with other names than in memory.
        missing, unexpected = put(model, converted)
        absent = _really_missing(model, missing)
    if absent:
        log.warning(
            f"{folder}: There were missing keys in the checkpoint model loaded: {first_few(absent, 5)}. The model "
            "keeps what it has.",
            under="transformers.trainer",
        )
    if unexpected:
        log.warning(
            f"{folder}: There were unexpected keys in the checkpoint model loaded: {first_few(unexpected, 5)}. They "
            "are not used.",
            under="transformers.trainer",
        )


def _put(model: Any, weights: dict[str, Any]) -> tuple[list[str], list[str]]:
    result = model.load_state_dict(weights, strict=False)
    return list(result.missing_keys), list(result.unexpected_keys)


def _is_adapter(folder: str) -> bool:
    """Return whether a folder holds only adapters, in itself or one level below."""
    whole = (parts.WEIGHTS, parts.WEIGHTS_INDEX, parts.OLD_WEIGHTS, parts.OLD_WEIGHTS_INDEX, parts.FULL_FSDP_WEIGHTS)
    return not any(io.isfile(io.join(folder, name)) for name in whole) and bool(_adapters(folder))


def _adapters(folder: str) -> list[str]:
    """Return the names of the adapters: `""` for one in the folder itself, else the name of the subfolder."""
    below = [io.name(entry.path) for entry in io.store(folder).children(folder) if entry.folder]
    files = (parts.ADAPTER, parts.OLD_ADAPTER)
    return [name for name in ["", *below] if any(io.isfile(io.join(folder, name, file)) for file in files)]


def _load_adapter(model: Any, folder: str) -> None:
    """Load every adapter; one in the folder itself becomes `default`, or the active one if it is the only one.

    A subfolder by whose name the model has no adapter is left out, if there is another: callbacks save copies there.
    """
    there, known = _adapters(folder), getattr(model, "peft_config", None)
    names = [name for name in there if not name or known is None or name in known] or there
    if left := [name for name in there if name not in names]:
        log.warning(
            f"{folder}: {', '.join(left)}: these belong to adapters that the model does not have, and are not loaded. "
            "To load them, first add adapters with these names to the model.",
            once=True,
        )
    found = getattr(model, "active_adapters", None)
    active = list((found() if callable(found) else found) or ["default"])[0]
    for name in names:
        called = name or ("default" if len(names) > 1 else active)
        model.load_adapter(io.join(folder, name) if name else folder, called, is_trainable=called == active)
    model.set_adapter(active)


def _converted(model: Any, folder: str) -> dict[str, Any]:
    if not knows_its_files(model) or not io.isfile(io.join(folder, parts.CONFIG)) or not io.islocal(folder):
        return {}
    same = type(model).from_pretrained(folder, config=model.config, dtype=model.dtype)
    return dict(same.state_dict())


def _really_missing(model: Any, missing: list[str]) -> list[str]:
    """Return the missing names without aliases of loaded parameters, and those that the model does not save."""
    if not missing:
        return []
    own, wanted = model.state_dict(keep_vars=True), set(missing)
    filled = {id(value) for name, value in own.items() if name not in wanted}
    ignored = set(getattr(model, "_keys_to_ignore_on_save", None) or ())
    return [name for name in missing if id(own.get(name)) not in filled and name not in ignored]
