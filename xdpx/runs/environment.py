"""With what a run was made: versions, device, commit. Equal bits are promised only where these are equal."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

import xdpx

PACKAGES = ("torch", "numpy", "transformers")


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Give the versions that decide a result, by name, without importing anything heavy."""
    found = {"xdpx": xdpx.__version__, "python": platform.python_version()}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def commit_lines() -> list[str]:
    """Say which commit of the working directory is in use, and how many of its files differ from it."""
    head = _git("rev-parse", "HEAD")
    if head is None:
        return ["the working directory is no git repository"]
    changed = (_git("status", "--porcelain") or "").splitlines()
    return [f"git commit {head}, {len(changed) or 'no'} files differ from it"]


def _git(*words: str) -> str | None:
    try:
        # No shell, and no word that comes from a file.
        done = subprocess.run(["git", *words], capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
