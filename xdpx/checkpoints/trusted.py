"""The one door to trust: tensors are read and written here, and a file is never allowed to run code."""

from __future__ import annotations

import errno
import os
import pickle  # for the name of its error
import re
import zipfile
from collections.abc import Iterator, Mapping
from typing import IO, Any

import torch

from xdpx.checkpoints import layout, tf_files
from xdpx.utils import commit, io
from xdpx.utils.raw_places import is_lfs_pointer

ONLY_TENSORS = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
"""By this variable torch takes tensors alone, whatever its own callers ask for."""
PLAIN = frozenset({str, bytes, int, float, bool, type(None), torch.Size})


class DamagedFile(OSError):
    """A tensor file cannot be read whole: it was cut short, altered, or is something else."""


def load_tensors(path: str, *, mmap: bool = False, device: str = "cpu", arrays: bool = False) -> Any:
    """Load tensors and plain values from a file made by `torch.save`, without running anything in it.

    Args:
        path: any path; a remote file is read through the local cache.
        mmap: map the file instead of reading it, so that only what is used is read.
        device: where the tensors go.
        arrays: NumPy arrays of numbers may be among them, as the Hugging Face Trainer stores NumPy's generator.

    Raises:
        FileNotFoundError: there is no such file.
        DamagedFile: it is cut short, altered, or no tensor file.
    """
    if not io.isfile(path):
        raise FileNotFoundError(f"{path}: there is no such file.")
    local = io.local(path)
    try:
        with torch.serialization.safe_globals(_array_parts() if arrays else []):
            return torch.load(local, map_location=device, weights_only=True, mmap=mmap)
    except pickle.UnpicklingError as error:
        # Torch's own words are left out: they advise to switch the safety off.
        pointer = _pointer(local)
        raise DamagedFile(f"{path}: ({pointer}." if pointer else _unpickling_report(path, error)) from None
    except (RuntimeError, EOFError, ValueError, KeyError, zipfile.BadZipFile, OSError) as error:
        if isinstance(error, OSError) and error.errno not in {errno.EINVAL, None}:
            raise  # the disk or the network; EINVAL is what torch says of a file that was cut short
        text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        reason = text.partition(". ")[0]  # torch goes on about what users might have done
        raise DamagedFile(
            f"{path}: is no whole tensor file ({reason}). Use another checkpoint, or copy it again."
        ) from error


def _array_parts() -> list[Any]:
    """Return what the pickle of an array of numbers is made of, under NumPy's names of today and before 2.0."""
    import numpy as np
    from numpy._core import multiarray as made

    found: list[Any] = [np.ndarray, np.dtype, *(type(np.dtype(code)) for code in "?bBhHiIlLqQefd")]
    for module in ("numpy._core.multiarray", "numpy.core.multiarray"):
        found += [(made._reconstruct, f"{module}._reconstruct"), (made.scalar, f"{module}.scalar")]
    return found


def load_safetensors(path: str) -> dict[str, torch.Tensor]:
    """Load a safetensors file, onto the host.

    Raises:
        FileNotFoundError: there is no such file.
        DamagedFile: it is cut short, altered, or none.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not io.isfile(path):
        raise FileNotFoundError(f"{path}: there is no such file.")
    local = io.local(path)
    try:
        return load_file(local, device="cpu")
    except SafetensorError as error:
        reason = _pointer(local) or f"{error}). Use another checkpoint, or copy it again"
        raise DamagedFile(f"{path}: is no whole safetensors file ({reason}.") from error


def _pointer(local: str) -> str:
    """Return the message that a file is only a pointer of Git LFS, which was not asked for the file; else ''."""
    with io.open(local, "rb") as file:
        is_pointer = is_lfs_pointer(file)
    return "a pointer of Git LFS, not the file). Fetch it: git lfs pull" if is_pointer else ""


def load_weights(path: str) -> Any:
    """Load weights; where a manifest says what was written, make sure that it is what is there.

    A file `.index` is that of a checkpoint of TensorFlow, whose variables are read under their names there.

    Raises:
        FileNotFoundError: there is no such file.
        DamagedFile: it is cut short, altered, or no tensor file.
    """
    if path.endswith(".safetensors"):
        return load_safetensors(path)
    if path.endswith(".index"):
        try:
            return tf_files.read(path)
        except tf_files.NotWhole as error:
            raise DamagedFile(str(error)) from error
    folder, file_name = io.parent(path), io.name(path)
    step = layout.step_of(file_name)
    name = layout.weights_name(step) if step is not None else ""
    if name and io.isfile(path) and commit.read_manifest(folder, name) is not None:
        for problem in commit.problems(folder, name, hashes=True):
            if problem.startswith(f"{file_name}: "):
                raise DamagedFile(f"{io.join(folder, problem)} Use another checkpoint, or copy it again.")
    return load_tensors(path)


def _unpickling_report(path: str, error: pickle.UnpicklingError) -> str:
    refused = re.search(r"GLOBAL ([\w.]+)", str(error))
    what = f"asks for {refused[1]}, which is neither tensor nor plain value," if refused else "is damaged"
    return f"{path}: {what} and was not loaded. Use another checkpoint, or save it again as a state_dict of tensors."


def save_tensors(values: object, target: IO[bytes]) -> None:
    """Write tensors and plain values so that `load_tensors` can read them. Equal values give equal bytes.

    Raises:
        TypeError: something else is among them, which could be written but never be read back.
        OSError: the disk is full, or fails otherwise.
    """
    _refuse_what_cannot_be_read(values, "")
    witness = _Witness(target)
    try:
        torch.save(values, witness)  # type: ignore[arg-type]
    except RuntimeError as error:
        # Of a disk that is full torch only says "unexpected pos".
        if witness.error is not None:
            raise witness.error from error
        raise


def bytes_of(values: object) -> int:
    """Return about how many bytes `save_tensors` will write: those of the tensors, each storage once."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in _tensors(values)}
    return sum(storages.values())


def _tensors(values: object) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, Mapping | list | tuple):
        for value in values.values() if isinstance(values, Mapping) else values:
            yield from _tensors(value)


class _Witness:
    """Passes writes on, and remembers why one failed."""

    def __init__(self, target: IO[bytes]) -> None:
        self._target = target
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        try:
            return self._target.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        self._target.flush()


def _refuse_what_cannot_be_read(value: Any, where: str) -> None:
    if isinstance(value, Mapping):
        for name, part in value.items():
            _refuse_what_cannot_be_read(part, f"{where}.{name}")
    elif type(value) in {list, tuple}:
        for index, part in enumerate(value):
            _refuse_what_cannot_be_read(part, f"{where}[{index}]")
    elif not isinstance(value, torch.Tensor) and type(value) not in PLAIN:
        raise TypeError(f"this is a bug: {where.lstrip('.')} is a {type(value)}; a checkpoint holds plain values only.")


def load_program(path: str) -> Any:
    """Return the network of a local file of torch.export, without unpickling anything but tensors.

    Raises:
        DamagedFile: it is cut short, altered, or holds more than tensors.
    """
    before = os.environ.get(ONLY_TENSORS)
    os.environ[ONLY_TENSORS] = "1"  # torch.export asks for any pickle otherwise
    try:
        return torch.export.load(path).module()
    except Exception as error:
        raise DamagedFile(f"{path} cannot be opened as a program: {str(error).partition(chr(10))[0]}") from error
    finally:
        os.environ.pop(ONLY_TENSORS)
        os.environ.update({} if before is None else {ONLY_TENSORS: before})
