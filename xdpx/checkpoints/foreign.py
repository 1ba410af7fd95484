"""Verify a checkpoint folder without manifest, from the Hugging Face Trainer or a hub.

The sizes its files should have are not recorded: each file is checked as far as is possible without unpickling.
"""

from __future__ import annotations

import json
import re
import struct
import zipfile
from typing import Any

from xdpx.checkpoints import parts
from xdpx.utils import io

LONGEST_HEADER = 100 << 20
"""Maximum size in bytes of a safetensors header, the limit of that library."""
_KNOWN = re.compile(
    r"(model|adapter_model)[\w.-]*\.safetensors|(trainer_state|config|generation_config|[\w.-]*\.index)\.json|"
    r"(optimizer|scheduler|scaler)\.pt|rng_state(_\d+)?\.pth|(pytorch_model|optimizer|adapter_model)[\w.-]*\.bin"
)
"""Names of the files written by a Trainer; other files in the folder are not checked."""
_OLD_TORCH = b"\x80\x02"
"""First bytes of the files of torch.save from before it wrote zip archives."""


def problems(folder: str, *, hashes: bool) -> list[str]:
    """Return the problems of a checkpoint folder without manifest.

    Args:
        folder: local or remote.
        hashes: also compare the checksums inside the tensor files.

    Returns:
        One sentence per problem, each naming the file.
    """
    found = {io.name(entry.path): entry for entry in io.store(folder).children(folder)}
    if parts.INCOMPLETE in found:
        return [f"{parts.INCOMPLETE} says that it was not finished."]
    if not any(name in found for name in parts.ANY_WEIGHTS):
        below = io.listdir(folder, recursive=True, contains="adapter_model.")
        if not {parts.ADAPTER, parts.OLD_ADAPTER} & {io.name(name) for name in below}:
            return [f"{parts.WEIGHTS}: it is missing."]
    faults = [
        f"{name}: {fault}."
        for name, entry in sorted(found.items())
        if not entry.folder and _KNOWN.fullmatch(name) and (fault := _fault(entry.path, entry.size or 0, hashes))
    ]
    return faults + _missing_shards(folder, set(found))


def _fault(path: str, size: int, hashes: bool) -> str:
    name = io.name(path)
    try:
        if name.endswith(".safetensors"):
            return _safetensors_fault(path, size)
        if name.endswith(".json"):
            content = read_json(path)
            counts = isinstance(content, dict) and isinstance(content.get("global_step"), int)
            return "" if counts or name != parts.STATE else "it has no global_step"
        return _archive_fault(path, hashes)
    except (OSError, ValueError, RecursionError, zipfile.BadZipFile) as error:
        return f"it cannot be read ({error})"


def read_json(path: str) -> Any:
    """Read a JSON file. Raises ValueError if it is not valid JSON, OSError if it cannot be read."""
    with io.open(path) as file:
        return json.load(file)


def _safetensors_fault(path: str, size: int) -> str:
    with io.open(path, "rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= length <= min(size - 8, LONGEST_HEADER):
            return f"it has {size} bytes and no complete header"
        header = json.loads(file.read(length))
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    expected = 8 + length + max(ends, default=0)
    return "" if size == expected else f"it has {size} bytes instead of {expected}"


def _archive_fault(path: str, hashes: bool) -> str:
    local = io.local(path)
    with io.local_files.open(local) as file:
        start = file.read(2)
        if start == _OLD_TORCH:
            return ""
        if start != b"PK" or not zipfile.is_zipfile(file):
            return "it was cut short, or is not a tensor file"
        with zipfile.ZipFile(file) as archive:
            broken = archive.testzip() if hashes else None
    return f"its part {broken} is not what was written (CRC differs)" if broken else ""


def shards(index: str) -> list[str]:
    """Return the names of the files that an index of weights lists, sorted.

    Raises:
        ValueError: the index is not valid, or lists a path outside its folder.
        OSError: the index cannot be read.
    """
    try:
        names = sorted(set(read_json(index)["weight_map"].values()))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{io.name(index)}: it lists no shards") from error
    strange = [name for name in names if not isinstance(name, str) or "/" in name or name in {"", ".", ".."}]
    if strange:
        raise ValueError(f"{io.name(index)}: it lists {strange[0]!r}, which is not a file beside it")
    return names


def _missing_shards(folder: str, names: set[str]) -> list[str]:
    missing: set[str] = set()
    for index in {parts.WEIGHTS_INDEX, parts.OLD_WEIGHTS_INDEX} & names:
        try:
            missing |= set(shards(io.join(folder, index))) - names
        except ValueError as error:
            return [f"{error}."]
    return [f"{name}: it is missing." for name in sorted(missing)]


def missing_parts(folder: str) -> list[str]:
    """Return the files that a checkpoint lacks to be resumed from, in at most one sentence."""
    names = {io.name(entry.path) for entry in io.store(folder).children(folder)}
    wanted = {
        parts.STATE: parts.STATE in names,
        parts.OPTIMIZER: any(name in names for name in parts.ANY_OPTIMIZER),
        parts.SCHEDULER: parts.SCHEDULER in names or parts.DEEPSPEED_POINTER in names,
    }
    missing = [name for name, is_there in wanted.items() if not is_there]
    return [f"It has no {', no '.join(missing)}, so that nothing can be continued from it."] if missing else []
