"""Name the process that made a temporary file or holds a lease, and tell later whether it still lives."""

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
        return Path(path).read_text(encoding="utf-8", errors="replace")  # a fact of the kernel, nobody's file
    except OSError:
        return ""


@cache
def machine_id() -> str:
    """Return ten hex digits for this machine since it started, and this container: process ids count only within."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    text = f"{socket.gethostname()}|{_read('/proc/sys/kernel/random/boot_id')}|{namespace}"
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def started_at(pid: int) -> int:
    """Return when a process began, in clock ticks since the machine did; 0 when it is gone or nobody tells."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 and fields[0] not in {"Z", "X"} else 0


def new_owner_id() -> str:
    """Return a fresh id that names this process: machine, process id, its start, and something random."""
    pid = os.getpid()
    return f"{machine_id()}-{pid}-{started_at(pid)}-{secrets.token_hex(4)}"


def fate_of(owner: str) -> Fate:
    """Tell whether the process that `new_owner_id` named lives, is gone, or runs where this machine cannot see it.

    Raises:
        ValueError: when `owner` is no such id.
    """
    found = _ID.match(owner)
    if not found:
        raise ValueError(f"'{owner}' is no owner id.")
    machine, pid, start = found.group(1), int(found.group(2)), int(found.group(3))
    if machine != machine_id():
        return "elsewhere"
    if start:
        return "alive" if started_at(pid) == start else "gone"
    return "alive" if _signals_reach(pid) else "gone"


def is_owner_id(text: str) -> bool:
    """Tell whether a text is an id that `new_owner_id` gave."""
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


def owner_in(name: str) -> str | None:
    """Return the owner id in a temporary file's name, or None when it is not one of ours."""
    _, mark, owner = name.rpartition(".tmp-")
    return owner if mark and _ID.match(owner) else None


def temporary_name(path: str, owner: str = "") -> str:
    """Return the name that an owner of `path` writes first: `<path>.tmp-<owner>`, cut where it would be too long."""
    suffix = f".tmp-{owner or new_owner_id()}"
    folder, name = os.path.split(path)
    if len(os.fsencode(name)) + len(suffix) > _LONGEST_NAME:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()[:32]
    return os.path.join(folder, name + suffix)
