"""The one door to trust: tensors are read and written here, and a file is never allowed to run code."""

from __future__ import annotations

import pickle  # for the name of its error
import zipfile
from typing import IO, Any

import torch

from xdpx.utils import io


class DamagedFile(OSError):
    """A tensor file cannot be read whole: it was cut short, altered, or is something else."""


def load_tensors(path: str, *, mmap: bool = False, device: str = "cpu") -> Any:
    """Load tensors and plain values from a file made by `torch.save`, without running anything in it.

    Args:
        path: any path; a remote file is read through the local cache.
        mmap: map the file instead of reading it, so that only what is used is read.
        device: where the tensors go.

    Raises:
        FileNotFoundError: there is no such file.
        DamagedFile: it is cut short, altered, or no tensor file.
    """
    if not io.isfile(path):
        raise FileNotFoundError(f"{path}: there is no such file.")
    local = io.local(path)
    try:
        return torch.load(local, map_location=device, weights_only=True, mmap=mmap)
    except pickle.UnpicklingError as error:
        raise DamagedFile(_unpickling_report(path, error)) from error
    except (RuntimeError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise DamagedFile(
            f"{path}: is no whole tensor file ({reason}). Use another checkpoint, or copy it again."
        ) from error


def _unpickling_report(path: str, error: pickle.UnpicklingError) -> str:
    reason = str(error).strip().splitlines()
    return (
        f"{path}: holds something else than tensors and plain values, or is damaged, and was not loaded "
        f"({reason[0] if reason else 'unreadable'}). Save it again as a state_dict of tensors."
    )


def save_tensors(values: Any, target: IO[bytes]) -> None:
    """Write tensors and plain values so that `load_tensors` can read them. Equal values give equal bytes."""
    torch.save(values, target)
