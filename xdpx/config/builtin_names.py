"""Built-in names for `${...}`. Each is computed only if a config refers to it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from datetime import date
from functools import cache

from xdpx.utils import git, io

_GPU_DEVICES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Linux has one of these (for NVIDIA, AMD, WSL) if a GPU can be used."""


def today() -> str:
    """Return today's date as yymmdd."""
    return date.today().strftime("%y%m%d")


def commit_hash() -> str:
    """Return the short commit hash of the working directory, or the first line of its `.git_version`.

    Raises:
        ValueError: neither exists.
    """
    return _commit_of(io.abspath("."))


@cache
def _commit_of(folder: str) -> str:
    found = git.answer("rev-parse", "--short", "HEAD", folder=folder)
    return found or _first_line(".git_version", "this is not a git repository, and there is no .git_version file.")


def test_root() -> str:
    """Return the folder for test data, which is the first line of the file `.test_meta` in the working directory.

    Raises:
        ValueError: there is no such file.
    """
    return _first_line(".test_meta", "there is no .test_meta file in the working directory.")


def _first_line(path: str, otherwise: str) -> str:
    if not io.isfile(path):
        raise ValueError(otherwise)
    with io.open(path) as file:
        return str(file.readline()).strip()


@cache
def device_count() -> int:
    """Return the number of GPUs that this process can use. Imports torch only if there may be one."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in {"", "-1"}
    if hidden or (sys.platform.startswith("linux") and not any(map(os.path.exists, _GPU_DEVICES))):
        return 0
    import torch  # slow: only on machines with a GPU

    return int(torch.cuda.device_count())


@cache
def compute_capability_is_7() -> bool:
    """Return whether there are GPUs, all of compute capability 7 (Volta) or more, which fp16 needs to be fast."""
    if not device_count():
        return False
    import torch

    return all(torch.cuda.get_device_capability(device)[0] >= 7 for device in range(device_count()))


def worker_count() -> int:
    """Return the number of processes of the job (`$WORLD_SIZE`); 1 if it is unset or not a number."""
    text = os.environ.get("WORLD_SIZE", "1")
    return int(text) if text.isdecimal() else 1


BUILTIN_NAMES: Mapping[str, Callable[[], str | int | bool]] = {
    "__date__": today,
    "__commit_hash__": commit_hash,
    "__gpus__": device_count,
    "__workers__": worker_count,
    "__apex__": compute_capability_is_7,
    "apex": compute_capability_is_7,  # how the printed documentation renders `__apex__`
    "__dc7__": compute_capability_is_7,
    "test_root": test_root,
}
"""Name -> function that computes its value. `__apex__`: whether mixed precision is useful on these GPUs."""
