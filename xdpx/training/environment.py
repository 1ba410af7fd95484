"""The environment of a run: versions, device, commit. Bit-identical results are promised only where these are equal."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import xdpx
from xdpx.utils import git

PACKAGES = ("torch", "numpy", "transformers")


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Return the versions that decide a result, by name, without importing anything heavy."""
    found = {"xdpx": xdpx.__version__, "python": platform.python_version()}
    found |= {package: number for package in packages if (number := _version(package))}
    return found


@cache
def _version(package: str) -> str:
    """Return the installed version, '' if there is none. Cached: it takes 2 ms, and is needed for every checkpoint."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def commit_lines() -> list[str]:
    """Return lines for the log: the commit of the working directory, and how many of its files differ from it."""
    head = git.head()
    if head is None:
        return ["the working directory is not a git repository"]
    return [f"git commit {head}, {git.num_changed() or 'no'} files differ from it"]
