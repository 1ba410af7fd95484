"""`x-io <verb> <arguments>`: the file operations of `io` on the command line, for local and remote paths alike."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from xdpx.utils import io
from xdpx.utils.retries import causes
from xdpx.utils.storage import scheme_of

VERBS: dict[str, tuple[str, ...]] = {
    "exists": ("path",),
    "isfile": ("path",),
    "isdir": ("path",),
    "islocal": ("path",),
    "is_writable": ("path",),
    "listdir": ("path",),
    "glob": ("pattern",),
    "size": ("path",),
    "lines": ("path",),
    "md5": ("path",),
    "last_modified": ("path",),
    "last_modified_str": ("path",),
    "abspath": ("path",),
    "local": ("path",),
    "copy": ("source", "target"),
    "copytree": ("source", "target"),
    "move": ("source", "target"),
    "makedirs": ("path",),
    "remove": ("path",),
    "rmtree": ("path",),
}
"""The operations and the paths each takes, in the order of the help."""

_SHELL = {
    "ls": "listdir",
    "dir": "listdir",
    "rm": "remove",
    "cp": "copy",
    "mv": "move",
    "mkdir": "makedirs",
    "wc": "lines",
}
"""Names of these operations in shells, suggested as corrections."""

_LISTDIR_OPTIONS: dict[str, dict[str, Any]] = {
    "--recursive": {"action": "store_true", "help": "list all files below it, by relative path"},
    "--full-path": {"action": "store_true", "help": "prefix each with the folder"},
    "--contains": {"metavar": "TEXT", "help": "only names that contain this text"},
}


def main(argv: Sequence[str]) -> int:
    """Perform the operation. Return the exit code: 0, 1 for a failure of disk or network, 2 for wrong usage."""
    if not argv or argv[0] in {"-h", "--help", "help"}:
        _show(_overview())
        return 0 if argv else 2
    verb, rest = argv[0], argv[1:]
    if verb not in VERBS:
        near = [_SHELL[verb]] if verb in _SHELL else get_close_matches(verb, VERBS, n=1)
        remedy = f"Did you mean '{near[0]}'?" if near else "`x-io --help` lists them."
        return _complain(f"x-io: there is no verb '{verb}'. {remedy}", 2)
    try:
        arguments = vars(_parser(verb).parse_args(rest))
    except SystemExit as stopped:
        return int(stopped.code or 0)
    return _run(verb, arguments)


def _overview() -> str:
    width = max(map(len, VERBS))
    lines = [f"  {verb:<{width}}  {_summary(verb)}" for verb in VERBS]
    return "\n".join(
        [
            "usage: x-io <verb> <arguments>",
            "",
            "Works on local paths and on s3:// oss:// gs:// http(s):// paths alike.",
            "",
            *lines,
            "",
            "`x-io <verb> --help` explains one.",
        ]
    )


def _summary(verb: str) -> str:
    first_line = (getattr(io, verb).__doc__ or "").strip().splitlines()[0]
    return first_line.partition(". ")[0].rstrip(".") + "."


def _parser(verb: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"x-io {verb}", description=_summary(verb), allow_abbrev=False)
    for path in VERBS[verb]:
        parser.add_argument(path, metavar=f"<{path}>", help="a local or remote path")
    for name, option in _LISTDIR_OPTIONS.items() if verb == "listdir" else ():
        parser.add_argument(name, **option)
    return parser


def _run(verb: str, arguments: dict[str, Any]) -> int:
    try:
        if any(scheme_of(arguments[path]) for path in VERBS[verb]):
            from xdpx.config.user_modules import load_user_modules

            load_user_modules()  # where remote credentials are set
        import xdpx.logger  # noqa: F401 - shows progress of slow operations from here on

        if verb == "remove" and _holds_something(arguments["path"]):
            raise ValueError(f"{arguments['path']}: is a folder that is not empty; `x-io rmtree` removes those.")
        _show(getattr(io, verb)(**arguments))
    except BrokenPipeError:  # the reader of our output, e.g. `head`, closed the pipe
        with io.open(os.devnull, "wb") as sink:
            os.dup2(sink.fileno(), sys.stdout.fileno())
    except KeyboardInterrupt:
        return _complain(f"x-io {verb}: stopped.", 130)
    except OSError as error:
        wrong_path = any(isinstance(cause, ValueError) for cause in causes(error))  # e.g. an unknown scheme
        return _complain(f"x-io {verb}: {_reason(error)}", 2 if wrong_path else 1)
    except ValueError as error:  # also ConfigError: a user's module that fails
        return _complain(f"x-io {verb}: {error}", 2)
    return 0


def _holds_something(path: str) -> bool:
    """Return whether a path is a folder, not a link to one, that is not empty."""
    return io.isdir(path) and not os.path.islink(io.plain(path)) and bool(io.listdir(path))


def _show(result: object) -> None:
    if result is None:
        return
    for line in result if isinstance(result, list) else [result]:
        sys.stdout.buffer.write(f"{line}\n".encode("utf-8", "surrogateescape"))
    sys.stdout.flush()


def _reason(error: OSError) -> str:
    if error.strerror:
        return f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    return str(error)


def _complain(text: str, code: int) -> int:
    from xdpx.commands.outcomes import record  # here: only needed after an error, and slow to import

    record(OSError(text))
    print(text, file=sys.stderr)
    return code
