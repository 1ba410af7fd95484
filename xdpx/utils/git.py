"""Ask git about a folder without letting the folder answer with a program of its own."""

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
"""Settings by which the `.git/config` of a folder, which may have been received, names programs to run."""
_ENVIRONMENT = {
    "GIT_OPTIONAL_LOCKS": "0",  # or asking would write the index, and call a hook about it
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_TERMINAL_PROMPT": "0",
}


def answer(*words: str, folder: str = ".") -> str | None:
    """Return what git says, without the last line end; None where there is no git, no repository, or no answer."""
    filters = (_said(["config", "--name-only", "-z", "--get-regexp", r"^filter\."], _OFF, folder) or "").split("\0")
    return _said(list(words), {**_OFF, **{name: _nothing(name) for name in filters if name}}, folder)


def head(folder: str = ".") -> str | None:
    """Return the commit that a folder stands at, 40 hex digits."""
    return answer("rev-parse", "HEAD", folder=folder)


def num_changed(folder: str = ".") -> int:
    """Count the files that differ from that commit; what lies in submodules is left out."""
    return len((answer("status", "--porcelain", "--ignore-submodules=all", folder=folder) or "").splitlines())


def _nothing(name: str) -> str:
    """Return the value that takes the work from a filter, such as one that cleans files before they are compared."""
    return "false" if name.lower().endswith(".required") else ""


def _said(words: list[str], settings: Mapping[str, str], folder: str) -> str | None:
    first = int(os.environ.get("GIT_CONFIG_COUNT") or 0)  # the user's own stay
    variables = {"GIT_CONFIG_COUNT": str(first + len(settings))}
    for number, (name, value) in enumerate(settings.items(), first):
        variables |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    options = [part for name, value in _OFF.items() for part in ("-c", f"{name}={value}")]  # for git before 2.31
    try:
        # No shell, and no word that comes from a file.
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
