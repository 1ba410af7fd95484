"""How much memory this process may take: what the machine has, and what its container allows."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
"""Where a container's limit and use stand, in bytes, under the second and the first version of control groups."""


def total_memory() -> int:
    """Return the bytes of memory that this process may have: its container's or all of the machine; 0 if unknown."""
    return min((size for size in (_machine_memory(), *(limit for limit, _ in _limits())) if size), default=0)


def available_memory() -> int:
    """Return the bytes that programs can still have; all of it where the system does not say."""
    left = [max(0, limit - used) for limit, used in _limits()]
    with suppress(OSError, StopIteration, ValueError):
        facts = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()  # facts of the kernel
        line = next(line for line in facts if line.startswith("MemAvailable:"))
        left.append(int(line.split()[1]) * 1024)
    return min(left, default=_machine_memory())


def _machine_memory() -> int:
    with suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 0


def _limits(files: Iterable[tuple[str, str]] = CGROUPS) -> list[tuple[int, int]]:
    """Return the limit and the use of this container, where there is a limit."""
    machine, found = _machine_memory(), []
    for limit_file, used_file in files:
        with suppress(OSError, ValueError):  # none, or "max"
            limit = int(Path(limit_file).read_text(encoding="utf-8"))
            if limit < machine:  # the first version writes a huge number for none
                found.append((limit, int(Path(used_file).read_text(encoding="utf-8"))))
    return found
