"""Print what XDPX finds on this machine, and what is wrong with it: versions, devices, memory, disks, storage.

Usage: x-script doctor [PATH...] [--fast]

  PATH     a folder, local or remote (s3://bucket/runs), in which a small file is written, read and deleted
  --fast   do not start torch and jax, which takes some seconds

Lines that need attention begin with !! and say what to do. Exit code 1 if there are any.
"""

from __future__ import annotations

import json
import locale
import os
import platform
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

from xdpx.commands.doctor_probe import Probe
from xdpx.commands.script_arguments import read_arguments
from xdpx.utils import io
from xdpx.utils.memory import available_memory, total_memory
from xdpx.utils.redaction import redact

NAME = "doctor"
PROBE_SECONDS = 120
GIB = 1024**3
LEAST_DISK = 5 * GIB
LEAST_SHARED_MEMORY = GIB
LEAST_OPEN_FILES = 1024
LEFT_BY_LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
SPINNING = "OMP_WAIT_POLICY"
"""Whether threads that wait for the last part of an operation spin, and so take the processor from other programs."""
TELLING = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", SPINNING, "HF_HOME", "HF_ENDPOINT", "HF_HUB_OFFLINE",
           "JAX_PLATFORMS", "XLA_FLAGS", "NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "TMPDIR", "HTTPS_PROXY")  # fmt: skip
"""Environment variables that change how a run behaves; printed if set."""


class Fact(NamedTuple):
    """One line of the output: what was found, and if that is a problem, what to do."""

    text: str
    remedy: str = ""


def main(argv: Sequence[str]) -> int:
    """Print what was found, section by section, and the number of lines that need attention."""
    arguments = read_arguments(NAME, argv, flags=["--fast"])
    probes = not arguments.flags
    sections = {
        "xdpx": _python(),
        "packages": _packages(),
        "devices": _devices() if probes else [],
        "machine": _machine(),
        "environment": _environment(),
        "storage": [found for path in arguments.paths for found in _storage(path)],
    }
    wrong = 0
    for title, lines in sections.items():
        for index, found in enumerate(lines):
            wrong += bool(found.remedy)
            print(f"{'' if index else title:<12} {'!!' if found.remedy else '  '} {found.text}")
            if found.remedy:
                print(f"{'':<16}{found.remedy}")
    print(f"\n{wrong} need{'s' * (wrong == 1)} attention, marked !!" if wrong else "\nno problems found")
    return 1 if wrong else 0


def _python() -> Iterator[Fact]:
    import xdpx
    from xdpx.utils import git

    folder = str(Path(xdpx.__file__).parent)
    commit = git.head(folder)
    yield Fact(f"xdpx {xdpx.__version__}{f', commit {commit[:10]}' if commit else ''} in {folder}")
    yield Fact(f"Python {platform.python_version()} ({sys.executable})")
    yield Fact(f"{platform.platform()}, {platform.machine()}")
    if locale.getpreferredencoding(False).upper().replace("-", "") != "UTF8":
        yield Fact(f"the encoding of text is {locale.getpreferredencoding(False)}", "Set LANG=C.UTF-8 or PYTHONUTF8=1.")


def _packages() -> Iterator[Fact]:
    """Compare installed versions with the requirements of this version of XDPX; of extras, only what is installed."""
    base, extras = list[Requirement](), dict[str, list[Requirement]]()
    for line in metadata.requires("xdpx") or ():
        need = Requirement(line)
        extra = str(need.marker).rpartition("extra == ")[2].strip("\"'") if "extra ==" in str(need.marker) else ""
        (extras.setdefault(extra, []) if extra else base).append(need)
    yield from _compared(base, "pip install -U xdpx")
    whole, absent = list[str](), list[str]()
    for extra, needs in sorted(extras.items()):
        if extra in {"dev", "docs", "bench"}:
            continue
        there = [need for need in needs if _version(need.name)]
        (whole if len(there) == len(needs) else absent).append(extra)
        yield from (found for found in _compared(there, f"pip install -U 'xdpx[{extra}]'") if found.remedy)
    yield Fact(f"extras: {', '.join(whole) or 'none'}; not installed: {', '.join(absent) or 'none'}")


def _compared(needs: Iterable[Requirement], line: str) -> Iterator[Fact]:
    fitting = []
    for need in needs:
        version = _version(need.name)
        if not version:
            yield Fact(f"{need.name} is not installed", f"Run: {line}")
        elif not need.specifier.contains(version, prereleases=True):
            yield Fact(f"{need.name} {version}, where {need.specifier} is needed", f"Run: {line}")
        else:
            fitting.append(f"{need.name} {version}")
    if fitting:
        yield Fact(", ".join(fitting))


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _devices() -> Iterator[Fact]:
    gpus = _nvidia()
    for gpu in gpus:
        yield Fact(f"driver: {gpu}")
    for library in ("torch", "jax"):
        if not _version(library):
            continue
        probe, trouble = _probe(library)
        if probe is None:
            yield Fact(f"{library} {_version(library)} does not start: {trouble}", f"Reinstall {library}.")
            continue
        yield Fact(f"{library} {probe['version']}, built for {probe['built_for']}")
        for device in probe["devices"]:
            memory = f", {device['memory_bytes'] / GIB:.1f} GiB" if device["memory_bytes"] else ""
            remedy = "Restart the driver, or hide the device with CUDA_VISIBLE_DEVICES." if device["trouble"] else ""
            yield Fact(f"{device['name']}{memory}{': ' if remedy else ''}{device['trouble']}", remedy)
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in {"", "-1"} or os.environ.get("JAX_PLATFORMS") == "cpu"
        if gpus and not hidden and all("cpu" in device["name"].lower() for device in probe["devices"]):
            yield Fact(
                f"{library} does not use the GPU of this machine",
                "It is a CPU build, or newer than the driver: install the build for the driver's CUDA version.",
            )


def _nvidia() -> list[str]:
    """Return one line for each GPU that the NVIDIA driver reports."""
    program = shutil.which("nvidia-smi")
    if not program:
        return []
    line = [program, "--query-gpu=name,driver_version,memory.total,memory.used", "--format=csv,noheader"]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"nvidia-smi does not answer: {error}"]
    return [text.strip() for text in done.stdout.splitlines() if text.strip()]


def _probe(library: str) -> tuple[Probe | None, str]:
    """Return (what the library finds in a subprocess, ''), or (None, the reason for the failure)."""
    line = [sys.executable, "-m", "xdpx.commands.doctor_probe", library]
    root = str(Path(__file__).resolve().parents[2])
    around = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))}
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False, env=around)
    except subprocess.TimeoutExpired:
        return None, f"no answer in {PROBE_SECONDS} seconds"
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        return None, last[0]
    probe: Probe = json.loads(done.stdout.splitlines()[-1])
    return probe, ""


def _machine() -> Iterator[Fact]:
    from xdpx.datasets.workers import available_cores

    cores, all_cores = available_cores(), os.cpu_count() or 1
    yield Fact(f"{cores} processors" + (f" of {all_cores} may be used" if cores != all_cores else ""))
    yield from _other_work(os.getloadavg()[0], all_cores)
    yield Fact(f"{available_memory() / GIB:.1f} GiB of memory free of {total_memory() / GIB:.1f}")
    yield from _disk("this folder", ".", LEAST_DISK, "Free some, or use a save_dir on another disk.")
    shared = "/dev/shm"
    if Path(shared).is_dir():
        remedy = "In a container: docker run --shm-size=8g. Workers that load data and NCCL need it."
        yield from _disk("shared memory", shared, LEAST_SHARED_MEMORY, remedy)
    files = _open_files()
    if files:
        yield Fact(f"{files:,} open files allowed", "Run: ulimit -n 65536" if files < LEAST_OPEN_FILES else "")


def _other_work(load: float, cores: int) -> Iterator[Fact]:
    """Yield a line if other programs keep all processors busy: not a fault, but a setting helps."""
    if load >= cores:
        advice = "" if SPINNING in os.environ else f"; {SPINNING}=PASSIVE then makes small models several times faster"
        yield Fact(f"other programs keep the processors busy (load {load:.1f}){advice}")


def _disk(name: str, folder: str, least: int, remedy: str) -> Iterator[Fact]:
    free = io.local_files.usable_space(folder)
    yield Fact(f"{free / GIB:.1f} GiB free ({name})", remedy if free < least else "")


def _open_files() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _environment() -> Iterator[Fact]:
    for name in TELLING:
        if name in os.environ:
            yield Fact(redact(f"{name}={os.environ[name]}"))
    left = [name for name in LEFT_BY_LAUNCHERS if name in os.environ]
    if left:
        yield Fact(
            f"{', '.join(left)} are set: x-train would run as one of several processes",
            f"If no launcher set them: unset {' '.join(left)}",
        )
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        yield Fact("PYTHONDONTWRITEBYTECODE is set: every start compiles torch again", "unset PYTHONDONTWRITEBYTECODE")


def _storage(path: str) -> Iterator[Fact]:
    """Write, read and delete a small file, and yield the times."""
    if io.islocal(path) and not io.isdir(path):
        yield Fact(f"{path}: there is no such folder", "Create it, or name an existing one.")
        return
    target, content = io.join(path, f"xdpx-doctor-{uuid.uuid4().hex[:8]}.txt"), "一个字节都不少\n" * 64
    works: dict[str, Callable[[], None]] = {
        "written": lambda: _write(target, content),
        "read": lambda: _read(target, content),
        "deleted": lambda: io.remove(target),
    }
    told = []
    for verb, work in works.items():
        started = time.monotonic()
        try:
            work()
        except Exception as error:  # any exception of a storage library is the finding
            yield Fact(f"{path}: nothing can be {verb}: {error}", "Check the address, the permission and the keys.")
            return
        told.append(f"{verb} {time.monotonic() - started:.2f} s")
    yield Fact(f"{path}: {', '.join(told)}")


def _write(path: str, content: str) -> None:
    with io.open(path, "w", encoding="utf-8") as file:
        file.write(content)


def _read(path: str, content: str) -> None:
    with io.open(path, encoding="utf-8") as file:
        if file.read() != content:
            raise OSError("what was read differs from what was written")
