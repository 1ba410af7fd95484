"""Profile-guided latency estimation (PGLE): operations are timed, and XLA schedules the next program by their times.

It is for NVIDIA's GPUs. Automatic: JAX profiles the first updates and compiles once more, in one process. Manual: a
first run traces some updates, `profile.pb` is made from the trace, and a second run gives it to XLA. Nothing at module
level imports jax: these settings must be made before JAX starts.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from xdpx.config.faults import ConfigError, Fault, did_you_mean
from xdpx.logger import log
from xdpx.utils import commit, io

Mode = Literal["off", "auto", "profile", "use"]
SOURCE = "--pgle"
PROFILE_FILE = "profile.pb"
RUNS = ("plugins", "profile")
"""Where a profiler puts a folder per trace, below the folder that it was given."""

TRACE_ENDING = ".xplane.pb"
SCHEDULER_FLAG = "--xla_gpu_enable_latency_hiding_scheduler"
PROFILE_FLAG = "--xla_gpu_pgle_profile_file_or_directory_path"
ENABLE, RUNS_VARIABLE, PERCENTILE, STRIP = (
    "JAX_ENABLE_PGLE", "JAX_PGLE_PROFILING_RUNS", "JAX_PGLE_AGGREGATION_PERCENTILE",
    "JAX_REMOVE_CUSTOM_PARTITIONING_PTR_FROM_CACHE_KEY",
)  # fmt: skip
LOG_LEVEL = "TF_CPP_MIN_LOG_LEVEL"


@dataclass(frozen=True)
class Pgle:
    """Settings of PGLE.

    Attributes:
        mode: `off`; `auto`; `profile`: trace some updates; `use`: schedule by a profile.
        profile: with `use`, the file or its folder, any path.
        runs: with `auto`, profiled calls before the second compilation; None for JAX's 3. More give a better profile
            and more slow updates.
        percentile: with `auto`, which percentile over devices counts; None for JAX's 90. Lower where updates are noisy.
        strip_pointer: with `auto`, leave pointers of host callbacks out of the key of the compilation cache, so that
            programs with callbacks can be recompiled.
    """

    mode: Mode = "off"
    profile: str | None = None
    runs: int | None = None
    percentile: int | None = None
    strip_pointer: bool = True


def pgle_of(
    text: str | None, *, runs: int | None = None, percentile: int | None = None, strip_pointer: bool = True
) -> Pgle:
    """Read `off`, `auto`, `profile` or the path of a profile, with the options of `auto`.

    Raises:
        ConfigError: a number is out of range, an option of `auto` is set without it, or the profile does not exist.
    """
    mode: Mode = "use" if text not in {None, "off", "auto", "profile"} else (text or "off")  # type: ignore[assignment]
    faults = [*_faults_of_options(mode, runs, percentile), *_faults_of_profile(text if mode == "use" else None)]
    if faults:
        raise ConfigError("command line", faults)
    return Pgle(mode, text if mode == "use" else None, runs, percentile, strip_pointer)


def _faults_of_options(mode: Mode, runs: int | None, percentile: int | None) -> list[Fault]:
    given = {"pgle_runs": runs, "pgle_percentile": percentile}
    faults = [
        Fault(f"--{name}", f"needs --pgle=auto, not {mode}.", "Add --pgle=auto.")
        for name, value in given.items()
        if value is not None and mode != "auto"
    ]
    if runs is not None and runs < 1:
        faults.append(Fault("--pgle_runs", f"is {runs}.", "Profile at least 1 call; 3 is usual."))
    if percentile is not None and not 0 <= percentile <= 100:
        faults.append(Fault("--pgle_percentile", f"is {percentile}.", "Use 0 to 100, e.g. 85."))
    return faults


def _faults_of_profile(path: str | None) -> list[Fault]:
    if path is None:
        return []
    file = profile_at(path)
    if not io.isfile(file):
        remedy = "Use auto, profile or off; or make a profile: --pgle=profile, then x-script pgle_profile DIR."
        remedy = did_you_mean(path, ("auto", "profile", "off"), remedy)
        return [Fault(SOURCE, f"is '{path}', where no {PROFILE_FILE} is.", remedy)]
    if not io.size(file):
        return [Fault(SOURCE, f"is '{path}', an empty file.", "Trace on an NVIDIA GPU; other devices give none.")]
    return []


def profile_at(path: str) -> str:
    """Return the file of a profile, which may be named by its folder."""
    return io.join(path, PROFILE_FILE) if io.isdir(path) else path


# ---- before JAX starts


def settings_of(pgle: Pgle, environ: Mapping[str, str], *, profile: str | None = None) -> dict[str, str]:
    """Return the environment variables for the settings, JAX's and `XLA_FLAGS`; flags that are already set stay.

    Args:
        pgle: the requested settings.
        environ: the current environment.
        profile: local path of the profile, for the mode `use`.
    """
    if pgle.mode == "off":
        return {}
    flags = {SCHEDULER_FLAG: "true"} | ({PROFILE_FLAG: profile} if profile is not None else {})
    settings = {"XLA_FLAGS": with_flags(environ.get("XLA_FLAGS", ""), flags)}
    if pgle.mode == "auto":
        settings |= {ENABLE: "true", STRIP: str(pgle.strip_pointer).lower()}
        knobs = {RUNS_VARIABLE: pgle.runs, PERCENTILE: pgle.percentile}
        settings |= {name: str(value) for name, value in knobs.items() if value is not None}
    if pgle.mode == "use":
        settings[LOG_LEVEL] = "0"  # XLA says only at this level whether it found the profile
    return settings


def with_flags(text: str, flags: Mapping[str, str]) -> str:
    """Return a value of XLA_FLAGS with flags added; a flag already set wins, with a warning if it differs."""
    given = dict(word.partition("=")[::2] for word in text.split())
    for name, value in flags.items():
        if given.get(name, value) != value:
            log.warning(f"XLA_FLAGS says {name}={given[name]}; PGLE would set {value}. Yours is kept.")
    added = [f"{name}={value}" for name, value in flags.items() if name not in given]
    return " ".join([*text.split(), *added])


def apply(pgle: Pgle, environ: MutableMapping[str, str] | None = None) -> None:
    """Set XLA's flags for a profile, before JAX starts. A second call with the same profile does nothing.

    Raises:
        ConfigError: XLA has read its flags already, in this process, without the requested ones.
    """
    environ = os.environ if environ is None else environ
    profile = io.local(profile_at(pgle.profile)) if pgle.profile is not None else None
    settings = settings_of(pgle, environ, profile=profile)
    if settings and settings["XLA_FLAGS"] != environ.get("XLA_FLAGS", "") and has_started():
        remedy = f"Restart the process, or set XLA_FLAGS='{settings['XLA_FLAGS']}' before JAX is first used."
        raise ConfigError("command line", [Fault(SOURCE, "comes too late: XLA has read its flags.", remedy)])
    environ.update(settings)
    if settings and "jax" in sys.modules:
        import jax

        for name, value in settings.items():
            if name.startswith("JAX_"):
                jax.config.update(name.lower(), int(value) if value.isdecimal() else value == "true")


def has_started() -> bool:
    """Return whether JAX has initialised its devices in this process, and so has read XLA's flags."""
    if "jax" not in sys.modules:
        return False
    from jax._src import xla_bridge

    return bool(xla_bridge.backends_are_initialized())


def is_automatic() -> bool:
    """Return whether automatic PGLE is on in this process, by a flag or by the environment."""
    from jax._src import config

    return bool(config.enable_pgle.value)


def warn_where_useless(pgle: Pgle, platform: str) -> None:
    """Log a warning if PGLE is on and has no effect on this kind of device."""
    if platform in {"gpu", "cuda"}:
        return
    if pgle.mode != "off" or is_automatic():
        log.warning(f"PGLE is for NVIDIA GPUs; on {platform} a trace has no times of operations, and it does nothing.")


# ---- in code


@contextmanager
def automatic(*functions: Any, runs: int = 1, percentile: int | None = None) -> Generator[None]:
    """Profile jitted functions for `runs` calls inside the block, and recompile them by that profile.

    Raises:
        TypeError: a function was compiled ahead of time: JAX cannot compile it again.
    """
    import jax
    from jax._src import config

    for function in functions:
        if isinstance(function, jax.stages.Compiled | jax.stages.Lowered):
            raise TypeError(
                "automatic PGLE has no effect on a function that was compiled ahead of time: JAX compiles it again "
                "while it runs. Give the jitted function itself, not .lower(...).compile(), or use a profile."
            )
    with config.enable_pgle(True), config.pgle_profiling_runs(runs):
        if percentile is None:
            yield
        else:
            with config.pgle_aggregation_percentile(percentile):
                yield


# ---- by hand


def newest_run(folder: str) -> str:
    """Return the folder of the newest trace: below a job's folder, a trace's, or the one of the trace itself.

    Raises:
        ConfigError: there is no trace.
    """
    folder = folder.rstrip("/")
    files = [path for depth in ("", "*/", "**/") for path in io.glob(io.join(folder, f"{depth}*{TRACE_ENDING}"))]
    runs = {path.rpartition("/")[0] for path in files}
    if not runs:
        remedy = "Trace some updates first: x-exp NAME --job_log_dir=DIR --pgle=profile."
        problem = f"has no {'/'.join(RUNS)}/*/*{TRACE_ENDING} below it."
        raise ConfigError("x-script pgle_profile", [Fault(folder, problem, remedy)])
    return max(runs, key=lambda run: run.rpartition("/")[2])  # sorted by name, which is a time


def make_profile(folder: str, convert: Callable[[str], bytes] | None = None) -> str:
    """Write `profile.pb` beside the newest trace, made from it, and return its path.

    Args:
        folder: any path; see `newest_run`.
        convert: folder of a trace on this machine -> the profile; None for JAX's own.

    Raises:
        ConfigError: there is no trace, or it contains no times of operations.
    """
    run = newest_run(folder)
    with tempfile.TemporaryDirectory() as place:
        for path in io.glob(io.join(run, f"*{TRACE_ENDING}")):
            io.copy(path, io.join(place, io.name(path)))
        profile = (convert or _converted)(place)
    if not profile:
        remedy = "Trace on an NVIDIA GPU: only there a trace has the times of operations."
        raise ConfigError("x-script pgle_profile", [Fault(run, "gives an empty profile.", remedy)])
    path = io.join(run, PROFILE_FILE)
    commit.write_bytes(path, profile)
    return path


def _converted(folder: str) -> bytes:
    from jax.experimental.profiler import get_profiled_instructions_proto

    return bytes(get_profiled_instructions_proto(folder))


# ---- was it used?

_READ = re.compile(r"Using PGLE profile from (\S+)")
_FOUND = re.compile(r"Found profile, using profile guided latency estimator")
_UNFIT = re.compile(r"PGLE profile may not applicable to the module, but will still be used ?: (.*)")


@dataclass(frozen=True)
class Use:
    """Whether a profile was used, according to a log.

    Attributes:
        files: which profiles XLA read.
        programs: how many programs were scheduled by one.
        misfits: operations of a profile that a program does not have.
    """

    files: tuple[str, ...]
    programs: int
    misfits: tuple[str, ...]

    @property
    def used(self) -> bool:
        """Whether the profile decided anything."""
        return bool(self.files) and self.programs > 0

    @property
    def text(self) -> str:
        """A summary in one or two sentences."""
        if not self.files and not self.programs:
            return f"XLA logged no profile. Was {LOG_LEVEL}=0, was the run on a GPU, is the log that of stderr?"
        if not self.used:
            found = f"XLA read {', '.join(self.files)}" if self.files else "XLA names no file"
            return f"{found}, and scheduled {self.programs} programs by a profile: it was not used."
        found = f"The profile was used: {self.programs} programs were scheduled by {', '.join(self.files)}."
        if not self.misfits:
            return found
        return f"{found} {len(self.misfits)} do not fit it well ({self.misfits[0]}): trace the program as it is now."


def use_in(lines: Iterable[str]) -> Use:
    """Find in the lines of a run's stderr whether XLA used a profile."""
    files: dict[str, None] = {}
    programs, misfits = 0, []
    for line in lines:
        if read := _READ.search(line):
            files[read.group(1)] = None
        elif _FOUND.search(line):
            programs += 1
        elif unfit := _UNFIT.search(line):
            misfits.append(unfit.group(1).strip())
    return Use(tuple(files), programs, tuple(misfits))
