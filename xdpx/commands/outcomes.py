"""What becomes of an error: the user's fault exits 2, the world's 1, ours 1 with a traceback; no other way out."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from xdpx.config import user_modules
from xdpx.config.faults import ConfigError

FINISHED, WORLD, USER, PREEMPTED, INTERRUPTED = 0, 1, 2, 85, 130
"""Exit codes; 85 means stopped by a signal after saving a full checkpoint, so that the same command can go on."""


def exit_code(work: Callable[[], int | None], *, verbose: bool = False) -> int:
    """Do the work and give its exit code; every error is told on stderr, in the words that its kind deserves."""
    try:
        return work() or FINISHED
    except SystemExit as stop:
        return _code_of(stop)
    except KeyboardInterrupt:
        _tell("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone, e.g. `| head`; nobody is left to tell
        return WORLD
    except ConfigError as error:
        _traceback_if(verbose)
        _tell(str(error))
        return USER
    except Exception as error:  # the last line of defence
        return _tell_error(error, verbose=verbose)


def _code_of(stop: SystemExit) -> int:
    if isinstance(stop.code, int) or stop.code is None:
        return stop.code or FINISHED
    _tell(str(stop.code))
    return WORLD


def _tell_error(error: Exception, *, verbose: bool) -> int:
    if isinstance(error, OSError | FloatingPointError):  # the latter: a training that diverged, and says what to do
        _traceback_if(verbose)
        _tell(_one_line(error))
    elif isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        _traceback_if(verbose)
        _tell(f"out of memory: {_one_line(error)} Lower batch_size (update_freq keeps the product) or max_len.")
    else:
        traceback.print_exc()
        own = _place_in_user_code(error)
        _tell(f"the error comes from your module {own}." if own else _bug_text())
    return WORLD


def _bug_text() -> str:
    from xdpx import __version__

    return f"this is a bug in xdpx {__version__}: please report it with the text above and your config."


def _one_line(error: Exception) -> str:
    """Write an error and its causes on one line."""
    parts: list[str] = []
    link: BaseException | None = error
    while link is not None and len(parts) < 4:
        text = " ".join(str(link).split()) or type(link).__name__
        if not any(text in part for part in parts):
            parts.append(text)
        link = link.__cause__
    return "; because: ".join(parts)


def _place_in_user_code(error: Exception) -> str:
    """Give file:line of the user's own module, when the error came out of it deeper than out of xdpx; otherwise ''."""
    package = str(Path(__file__).parents[1])
    places = tuple(str(folder.resolve()) for folder in user_modules.folders())
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.startswith(package):
            return ""
        if places and frame.filename.startswith(places):
            return f"{frame.filename}:{frame.lineno}"
    return ""


def _traceback_if(verbose: bool) -> None:
    if verbose:
        traceback.print_exc()


def _tell(text: str) -> None:
    sys.stderr.write(text.rstrip() + "\n")
