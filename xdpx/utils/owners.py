"""Owner ids: they name the process that wrote a temporary file or holds a lease, and show whether it is still alive."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket
from functools import cache
from pathlib import Path
from typing import Literal

Fate = Literal["alive", "gone", "elsewhere"]
_LONGEST_NAME = 255
_ID = re.compile(r"^([0-9a-f]{10})-(\d+)-(\d+)-([0-9a-f]{8})$")


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")  # not through io: only /proc is read
    except OSError:
        return ""


@cache
def machine_id() -> str:
    """Return ten hex digits for this host, boot and PID namespace, within which process ids are comparable."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    text = f"{socket.gethostname()}|{_read('/proc/sys/kernel/random/boot_id')}|{namespace}"
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def started_at(pid: int) -> int:
    """Return the start time of a process in clock ticks since boot; 0 if it is gone or unknown (no /proc)."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[0] not in {"Z", "X"} else 0


@cache
def _own_start() -> int:
    return started_at(os.getpid())


os.register_at_fork(after_in_child=_own_start.cache_clear)


def new_owner_id() -> str:
    """Return a new unique id of this process: machine id, process id, start time, and random digits."""
    return f"{machine_id()}-{os.getpid()}-{_own_start()}-{secrets.token_hex(4)}"


def fate_of(owner: str) -> Fate:
    """Return whether an owner's process is `alive`, `gone`, or `elsewhere`: on another machine, container or boot.

    Raises:
        ValueError: `owner` is not an owner id.
    """
    found = _ID.match(owner)
    if not found:
        raise ValueError(f"'{owner}' is not an owner id.")
    machine, pid, start = found.group(1), int(found.group(2)), int(found.group(3))
    if machine != machine_id():
        return "elsewhere"
    if start:
        return "alive" if started_at(pid) == start else "gone"
    return "alive" if _signals_reach(pid) else "gone"


def is_owner_id(text: str) -> bool:
    """Return whether a text has the form of an owner id."""
    return _ID.match(text) is not None


def pid_of(owner: str) -> int:
    """Return the process id in an owner id."""
    return int(owner.split("-")[1])


def _signals_reach(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def is_lasting(name: str) -> bool:
    """Return whether a name in a folder is neither hidden, as the lease is, nor that of a file being written."""
    return not name.startswith(".") and ".tmp-" not in name


def owner_in(name: str) -> str | None:
    """Return the owner id in the name of a temporary file, or None if `temporary_name` did not make it."""
    _, mark, owner = name.rpartition(".tmp-")
    return owner if mark and _ID.match(owner) else None


def temporary_name(path: str, owner: str = "") -> str:
    """Return the temporary name for writing `path`: `<path>.tmp-<owner>`; a name over 255 bytes is hashed.

    Args:
        path: the final path.
        owner: owner id; by default a new one of this process.
    """
    suffix = f".tmp-{owner or new_owner_id()}"
    folder, name = os.path.split(path)
    if len(os.fsencode(name)) + len(suffix) > _LONGEST_NAME:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()[:32]
    return os.path.join(folder, name + suffix)
