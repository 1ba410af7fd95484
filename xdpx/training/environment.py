"""With what a run was made: versions, device, commit. Equal bits are promised only where these are equal."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

import xdpx
from xdpx.utils import git

PACKAGES = ("torch", "numpy", "transformers")


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Return the versions that decide a result, by name, without importing anything heavy."""
    found = {"xdpx": xdpx.__version__, "python": platform.python_version()}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def commit_lines() -> list[str]:
    """Say which commit of the working directory is in use, and how many of its files differ from it."""
    head = git.head()
    if head is None:
        return ["the working directory is no git repository"]
    return [f"git commit {head}, {git.num_changed() or 'no'} files differ from it"]
