"""Turn errors into messages and exit codes: 2 for the user's, 1 for the environment's, 1 with traceback for ours."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from xdpx.config import user_modules
from xdpx.config.faults import ConfigError
from xdpx.utils.distributed_utils import LOST_PEER_CODE, is_lost_peer
from xdpx.utils.memory import comes_of_out_of_memory
from xdpx.utils.redaction import redact
from xdpx.utils.retries import causes

FINISHED, WORLD, USER, PREEMPTED, INTERRUPTED = 0, 1, 2, 85, 130
"""Exit codes; 85 means stopped by a signal after saving a complete checkpoint, so that the same command can resume."""


_RECORDS: list[list[BaseException]] = []


@contextmanager
def recorded() -> Generator[list[BaseException]]:
    """Collect the errors reported within the block, for `--json`."""
    _RECORDS.append([])
    try:
        yield _RECORDS[-1]
    finally:
        _RECORDS.pop()


def announce(text: str) -> None:
    """Print what must be read while a command runs: on standard error with `--json`, which keeps the output back."""
    print(text, file=sys.stderr if _RECORDS else sys.stdout, flush=True)


def exit_code(work: Callable[[], int | None], *, verbose: bool = False) -> int:
    """Do the work and return its exit code; print every error to stderr, in the form that fits its kind."""
    try:
        return work() or FINISHED
    except SystemExit as stop:
        if not stop.code and (place := _in_user_module(stop)):
            _tell(f"sys.exit in your module {place} ended this command early, with the exit code for success.")
            return WORLD
        if isinstance(stop.code, int) or stop.code is None:
            return stop.code or FINISHED
        record(stop)
        _tell(str(stop.code))
        return WORLD
    except KeyboardInterrupt as error:
        record(error)
        _tell("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output, e.g. `| head`, closed the pipe
        return WORLD
    except ConfigError as error:
        record(error)
        _traceback_if(verbose)
        _tell(str(error))
        return USER
    except Exception as error:  # the last line of defence
        record(error)
        return _tell_error(error, verbose=verbose)


def record(error: BaseException) -> None:
    """Add a reported error to the innermost `recorded`, if there is one."""
    if _RECORDS:
        _RECORDS[-1].append(error)


def _tell_error(error: Exception, *, verbose: bool) -> int:
    expected = isinstance(error, OSError | FloatingPointError)  # the latter: a training that diverged
    if is_lost_peer(error):
        _traceback_if(verbose)
        _tell("another process of this training has ended, so this one ends too: see the messages of that one.")
        return LOST_PEER_CODE
    if comes_of_out_of_memory(error) and not (expected and getattr(error, "errno", None) is None):
        _traceback_if(verbose)
        _tell(f"out of memory: {_one_line(error)}. {_LESS}")
    elif expected or isinstance(error, EOFError):
        _traceback_if(verbose)
        _tell(_one_line(error))
    elif isinstance(error, UnicodeEncodeError) and "surrogates" in error.reason:
        _traceback_if(verbose)
        _tell(f"{error.object!r}: is not UTF-8, but file names must be. Rename it, or set PYTHONUTF8=1.")
    else:
        _tell_whose(error, verbose=verbose)
    return WORLD


_LESS = "Lower batch_size (update_freq keeps the product), max_len or workers, or raise the limit (ulimit -v)."


def _tell_whose(error: Exception, *, verbose: bool) -> None:
    """Print an unexpected error: in a line or two if it comes from the user's own code, else with traceback.

    A StopIteration that leaves a user's code is raised again by a generator of ours, so its causes are looked at, too.
    """
    chain = [traceback.extract_tb(link.__traceback__) for link in causes(error)]
    frames = next((found for found in chain if any(_is_users(frame.filename) for frame in found)), chain[0])
    absent = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if absent and absent != "xdpx" and not any(_is_users(frame.filename) for frame in frames) and _is_absent(absent):
        how = _INSTALL.get(absent, f"pip install {absent}")
        _tell(f"the package {absent} is needed for this, but is not installed. Run: {how}.")
        return
    if isinstance(error, SyntaxError) and error.filename and _is_users(error.filename):
        _traceback_if(verbose)
        _tell(f"{type(error).__name__}: {error.msg}\n  {(error.text or '').strip()}")
        _tell(f"the error comes from your module {error.filename}:{error.lineno}.")
        return
    own = [index for index, frame in enumerate(frames) if _is_users(frame.filename)]
    ours = [index for index, frame in enumerate(frames) if frame.filename.startswith(_PACKAGE)]
    if not own and (initialiser := _unfinished_initialiser(error)):
        _traceback_if(verbose)
        _tell(f"{type(error).__name__}: {_one_line(error)}")
        _tell(f"If its base class sets that, call super().__init__ with all arguments at {initialiser}.")
        return
    if not own:
        from xdpx import __version__

        _print_traceback(error)
        _tell(f"this is a bug in xdpx {__version__}: please report it with the text above and your config.")
        if mine := user_modules.used():
            names = ", ".join(f"{name}.py" for name in mine)
            _tell(f"But check your own classes first ({names}): a value that one of them returned may be the cause.")
        return
    place = frames[own[-1]]
    where = f"{place.filename}:{place.lineno}"
    if ours and ours[-1] > own[-1]:
        _print_traceback(error)
        _tell(f"the error comes from a call of xdpx in your module {where}: look there first ({place.line}).")
        return
    if verbose:
        _print_traceback(error)
    notes = "".join(f"\n  {note}" for note in getattr(error, "__notes__", []))
    _tell(f"{type(error).__name__}: {_one_line(error)}\n  in {place.name}: {place.line}{notes}")
    _tell(f"the error comes from your module {where}." + " --verbose shows the traceback." * (not verbose))


def _unfinished_initialiser(error: Exception) -> str:
    """Return file:line of a user's `__init__` if an object that it made lacks an attribute; "" if there is none."""
    code = getattr(getattr(type(getattr(error, "obj", None)), "__init__", None), "__code__", None)
    if not isinstance(error, AttributeError) or code is None or not _is_users(code.co_filename):
        return ""
    return f"{code.co_filename}:{code.co_firstlineno}"


_INSTALL = {
    "torch": "pip install torch (first and alone, to choose the build for your device)",
    **dict.fromkeys(("jax", "jaxlib", "flax", "optax", "orbax", "fiddle"), "pip install 'xdpx[jax]'"),
    **dict.fromkeys(("openpyxl", "pyarrow"), "pip install 'xdpx[data]'"),
}
"""{package: how to install it}, if that is not `pip install` and its name"""

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_LIBRARIES = tuple({os.path.join(path, "") for path in sysconfig.get_paths().values() if path})


def _is_absent(package: str) -> bool:
    """Return whether a package is not installed, as opposed to installed without the module imported."""
    try:
        return find_spec(package) is None
    except (ImportError, ValueError):
        return True


def _is_users(file: str) -> bool:
    """Return whether a file belongs to the user: not to xdpx, Python or an installed package, and not generated."""
    installed = "site-packages" in file or "dist-packages" in file
    return not (installed or file.startswith((_PACKAGE, *_LIBRARIES, "<")))


def _in_user_module(error: BaseException) -> str:
    """Return file:line of the last of the user's modules that raised an error; "" if none did."""
    files = user_modules.files()
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def _one_line(error: Exception) -> str:
    """Return an error and its causes on one line."""
    parts: list[str] = []
    for link in causes(error):
        if type(link).__name__ == "_RemoteTraceback":  # of a worker process: holds the whole traceback
            continue
        text = " ".join(str(link).split()) or type(link).__name__
        if not any(text in part for part in parts):
            parts.append(text)
    return "; because: ".join(parts[:4])


def _traceback_if(verbose: bool) -> None:
    if verbose:
        _tell(traceback.format_exc())


def _print_traceback(error: Exception) -> None:
    _tell("".join(traceback.format_exception(error)))


def _tell(text: str) -> None:
    sys.stderr.write(redact(text.rstrip()) + "\n")
