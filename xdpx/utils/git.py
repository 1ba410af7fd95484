"""Run git in a folder without running programs that the folder's own git config names."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

SECONDS = 10
_OFF: Mapping[str, str] = {
    "core.fsmonitor": "false",
    "core.untrackedCache": "false",
    "core.hooksPath": os.devnull,
    "core.sshCommand": "",
    "core.pager": "cat",
    "diff.external": "",
    "status.submoduleSummary": "false",
    "protocol.allow": "never",
    "safe.bareRepository": "explicit",
}
"""Overrides of settings by which an untrusted `.git/config` can make git run programs."""
_ENVIRONMENT = {
    "GIT_OPTIONAL_LOCKS": "0",  # else `git status` would refresh the index, and call a hook
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_TERMINAL_PROMPT": "0",
}


def answer(*words: str, folder: str = ".") -> str | None:
    """Return the output of a git command, without trailing newlines.

    None if git is not installed, the command fails (e.g. there is no repository), or takes over `SECONDS`.
    """
    if words[0] == "rev-parse":  # reads no file of the working directory, so it runs no filter
        return _said(list(words), _OFF, folder)
    filters = (_said(["config", "--name-only", "-z", "--get-regexp", r"^filter\."], _OFF, folder) or "").split("\0")
    return _said(list(words), {**_OFF, **{name: _nothing(name) for name in filters if name}}, folder)


def head(folder: str = ".") -> str | None:
    """Return the commit that is checked out in a folder, 40 hex digits; None as in `answer`."""
    return answer("rev-parse", "HEAD", folder=folder)


def num_changed(folder: str = ".") -> int:
    """Return the number of lines of `git status --porcelain`, ignoring submodules: changed and untracked paths."""
    return len((answer("status", "--porcelain", "--ignore-submodules=all", folder=folder) or "").splitlines())


def _nothing(name: str) -> str:
    """Return the value of a `filter.*` setting that disables the filter (they run programs on files)."""
    return "false" if name.lower().endswith(".required") else ""


def _said(words: list[str], settings: Mapping[str, str], folder: str) -> str | None:
    first = int(os.environ.get("GIT_CONFIG_COUNT") or 0)  # keep the user's own settings
    variables = {"GIT_CONFIG_COUNT": str(first + len(settings))}
    for number, (name, value) in enumerate(settings.items(), first):
        variables |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    options = [part for name, value in _OFF.items() for part in ("-c", f"{name}={value}")]  # for git before 2.31
    try:
        # No shell, and no argument that comes from a file.
        done = subprocess.run(
            ["git", "-C", folder, *options, "--no-pager", *words],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **_ENVIRONMENT, **variables},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.rstrip("\n")
