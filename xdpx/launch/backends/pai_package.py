"""The package for PAI: the project in its current state, without files that begin with a dot."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator

import xdpx
from xdpx.config.faults import ConfigError, Fault
from xdpx.utils import commit, io
from xdpx.utils.progress import format_bytes

PACKAGE, ENTRY, SCRIPT = "package.tar.gz", "pai_entry.py", "job.sh"
LARGEST = 100 * 1024 * 1024
SKIPPED = frozenset({"__pycache__", "submissions", "node_modules"})
OURS = (ENTRY, SCRIPT, "git.json")
"""Files of the submission that are added to the package."""

ENTRY_TEXT = """\
# Runs job.sh with a Python that is new enough for XDPX; itself with any, for images of PAI bring old ones.
import os
import sys

try:
    from shutil import which
except ImportError:
    from distutils.spawn import find_executable as which

os.chdir(os.path.dirname(os.path.abspath(__file__)))
names = [sys.executable] if sys.version_info >= (3, 11) else ["python3.%d" % minor for minor in (14, 13, 12, 11)]
found = [path for path in map(which, names) if path]
if not found:
    sys.exit("XDPX needs Python 3.11 or newer, and this image only has %s. Use your own image: "
             "x-submit ... --on dlc --image IMAGE." % sys.version.split()[0])
os.environ["XDPX_PYTHON"] = found[0]
os.execvp("bash", ["bash", "job.sh"])
"""
"""The script that PAI starts with the Python of its image."""


def faults(project: str) -> Iterator[Fault]:
    """Yield a fault if the project is too large to be packed, naming its largest files."""
    sizes = {name: io.size(path) for name, path in _below(project, "")}
    total = sum(sizes.values())
    if total > LARGEST:
        largest = sorted(sizes, key=lambda name: -sizes[name])[:3]
        listed = ", ".join(f"{name} ({format_bytes(sizes[name])})" for name in largest)
        problem = f"has {format_bytes(total)} of files, more than the {format_bytes(LARGEST)} that go to PAI: {listed}."
        yield Fault(project, problem, "Put data and models on OSS, and name them by oss:// in configs.")


def write(path: str, *, project: str, folder: str) -> None:
    """Write the package atomically.

    Args:
        path: of the package.
        project: the working directory, to which paths in configs are relative.
        folder: of the submission on this machine, with the files of `OURS`.

    Raises:
        ConfigError: the project is too large.
    """
    found = list(faults(project))
    if found:
        raise ConfigError("x-submit", found)
    with (
        commit.replacing(path, "wb", own=True, private=True) as target,
        tarfile.open(fileobj=target, mode="w:gz", format=tarfile.GNU_FORMAT) as archive,
    ):
        for name, file in _files(project):
            _add(archive, name, file)
        for name in OURS:
            _add(archive, name, io.join(folder, name))


def _add(archive: tarfile.TarFile, name: str, path: str) -> None:
    if not io.isfile(path):
        return
    facts = tarfile.TarInfo(name)
    facts.size, facts.mtime, facts.mode = io.size(path), int(os.path.getmtime(path)), 0o755
    with io.open(path, "rb") as file:
        archive.addfile(facts, file)


def _files(project: str) -> Iterator[tuple[str, str]]:
    """Yield (name in the package, file) for all of the project, and for the package xdpx if the project lacks it."""
    yield from _below(project, "")
    if not io.isdir(io.join(project, "xdpx")):
        yield from _below(io.parent(io.abspath(str(xdpx.__file__))), "xdpx/")


def _below(root: str, prefix: str) -> Iterator[tuple[str, str]]:
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(name for name in inner if not name.startswith(".") and name not in SKIPPED)
        beside = os.path.relpath(folder, root)
        for name in sorted(names):
            path = os.path.join(folder, name)
            if not name.startswith(".") and io.isfile(path):
                yield prefix + os.path.normpath(os.path.join(beside, name)), path
