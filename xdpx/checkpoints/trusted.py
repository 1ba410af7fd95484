"""Read and write files of tensors, without ever running code from them; all tensor files are read here."""

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
from xdpx.config.faults import ConfigError, Fault, first_line
from xdpx.utils import commit, io
from xdpx.utils.raw_places import is_lfs_pointer

ONLY_TENSORS = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
"""Environment variable that makes torch load only tensors, regardless of the arguments of `torch.load`."""
PLAIN = frozenset({str, bytes, int, float, bool, type(None), torch.Size})


class NotPlain(ConfigError, TypeError):
    """A state holds something else than tensors and plain values; often one of a user's own class."""


class DamagedFile(OSError):
    """A tensor file is truncated, altered, or not a tensor file."""


def load_tensors(path: str, *, mmap: bool = False, device: str = "cpu", arrays: bool = False) -> Any:
    """Load tensors and plain values from a file of `torch.save`, without running code from it.

    Args:
        path: local or remote; a remote file is read through the local cache.
        mmap: map the file into memory, so that only the tensors that are used are read.
        device: of the loaded tensors.
        arrays: also allow NumPy arrays of numbers, as in the Trainer's state of NumPy's random generator.

    Raises:
        FileNotFoundError: the file does not exist.
        DamagedFile: the file is truncated, altered, or not a tensor file.
        OSError: the disk or the network failed.
    """
    if not io.isfile(path):
        raise FileNotFoundError(f"{path}: there is no such file.")
    local = io.local(path)
    try:
        with torch.serialization.safe_globals(_array_parts() if arrays else []):
            return torch.load(local, map_location=device, weights_only=True, mmap=mmap)
    except pickle.UnpicklingError as error:
        # Torch's message is left out: it advises to disable weights_only.
        pointer = _pointer(local)
        raise DamagedFile(f"{path}: ({pointer}." if pointer else _unpickling_report(path, error)) from None
    except (RuntimeError, EOFError, ValueError, KeyError, zipfile.BadZipFile, OSError) as error:
        if isinstance(error, OSError) and error.errno not in {errno.EINVAL, None}:
            raise  # the disk or the network; EINVAL is torch's error for a truncated file
        reason = first_line(error).partition(". ")[0]  # the rest of torch's message is speculation about the cause
        raise DamagedFile(
            f"{path}: is not a complete tensor file ({reason}). Use another checkpoint, or copy it again."
        ) from error


def _array_parts() -> list[Any]:
    """Return the globals in the pickle of an array of numbers, under NumPy's names since 2.0 and before."""
    import numpy as np
    from numpy._core import multiarray as made

    found: list[Any] = [np.ndarray, np.dtype, *(type(np.dtype(code)) for code in "?bBhHiIlLqQefd")]
    for module in ("numpy._core.multiarray", "numpy.core.multiarray"):
        found += [(made._reconstruct, f"{module}._reconstruct"), (made.scalar, f"{module}.scalar")]
    return found


def load_safetensors(path: str) -> dict[str, torch.Tensor]:
    """Load a safetensors file to the CPU.

    Raises:
        FileNotFoundError: the file does not exist.
        DamagedFile: the file is truncated, altered, or not a safetensors file.
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
        raise DamagedFile(f"{path}: is not a complete safetensors file ({reason}.") from error


def _pointer(local: str) -> str:
    """Return the message that a file is only a Git LFS pointer; '' if it is not."""
    with io.open(local, "rb") as file:
        is_pointer = is_lfs_pointer(file)
    return "a pointer of Git LFS, not the file). Fetch it: git lfs pull" if is_pointer else ""


def load_weights(path: str) -> Any:
    """Load weights; those of `x-train` are first compared with their manifest, if there is one.

    Args:
        path: a file of `torch.save`, a `.safetensors` file, or the `.index` file of a TensorFlow checkpoint, whose
            variables keep their names.

    Raises:
        FileNotFoundError: the file does not exist.
        DamagedFile: the file is truncated, altered, or not a tensor file.
        ConfigError: TensorFlow is needed, but not installed.
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
    """Write tensors and plain values for `load_tensors`. Equal values give equal bytes.

    Raises:
        NotPlain: a value of another type, which could be written but not read back.
        OSError: the disk is full or failed.
    """
    _refuse_what_cannot_be_read(values, "")
    witness = _Witness(target)
    try:
        torch.save(values, witness)  # type: ignore[arg-type]
    except RuntimeError as error:
        # On a full disk torch only reports "unexpected pos".
        if witness.error is not None:
            raise witness.error from error
        raise


def bytes_of(values: object) -> int:
    """Return the approximate size in bytes of the file of `save_tensors`: the sum of all distinct storages."""
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in _tensors(values)}
    return sum(storages.values())


def _tensors(values: object) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, Mapping | list | tuple):
        for value in values.values() if isinstance(values, Mapping) else values:
            yield from _tensors(value)


class _Witness:
    """Forwards writes to a file, and stores the error of one that failed."""

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
        problem = f"is a {type(value).__module__}.{type(value).__name__}, which could not be read back."
        remedy = (
            "A state holds numbers, texts, tensors, and dicts, lists and tuples of them: convert it at its source "
            "(a state_dict of your own, settings of an optimizer), e.g. by float() or torch.as_tensor()."
        )
        raise NotPlain("checkpoint", [Fault(where.lstrip("."), problem, remedy)])


def load_program(path: str) -> Any:
    """Return the module of a local file of torch.export, without unpickling anything but tensors.

    Raises:
        DamagedFile: the file is truncated, altered, or holds more than tensors.
    """
    before = os.environ.get(ONLY_TENSORS)
    os.environ[ONLY_TENSORS] = "1"  # otherwise torch.export allows any pickle
    try:
        return torch.export.load(path).module()
    except Exception as error:
        raise DamagedFile(f"{path} cannot be opened as a program: {str(error).partition(chr(10))[0]}") from error
    finally:
        os.environ.pop(ONLY_TENSORS)
        os.environ.update({} if before is None else {ONLY_TENSORS: before})
