"""`--json`: print one JSON object on standard output, also after an error; everything else goes to standard error.

It holds `xdpx` (version), `exit_code`, `faults` (of a ConfigError: key, problem, remedy, file, line), `error` (its
text; null without an error), `jobs` (what each command of the line did), `output` (lines that commands printed) and
`results` (JSON that they printed). If the line is one command that prints one object, such as x-run and x-eval, the
keys of that object are at the top level instead.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from tempfile import TemporaryFile
from typing import IO, Any

from xdpx.commands import outcomes
from xdpx.config.faults import ConfigError, Fault
from xdpx.config.loading import Run
from xdpx.datasets.findings.finding import FILE
from xdpx.datasets.meta import read_meta
from xdpx.training.status import STATUS_FILE
from xdpx.utils import io
from xdpx.utils.redaction import redact


@dataclass
class Done:
    """The result of one command of a line."""

    command: str
    config: str = ""
    runs: Sequence[Run] = ()
    exit_code: int | None = None
    folder: str = ""
    """Output folder of a job without a config, such as x-exp."""

    def as_json(self) -> dict[str, Any]:
        """Return it for JSON, with the folder, the status and the non-default values of each run."""
        told: dict[str, Any] = {"command": self.command, "config": self.config, "exit_code": self.exit_code}
        if self.folder:
            told |= {"folder": self.folder, "status": _json_of(io.join(self.folder, STATUS_FILE))}
        return told | {"runs": [_run(run) for run in self.runs]}


@dataclass
class LineResults:
    """The results of a line so far."""

    jobs: list[Done] = field(default_factory=list)


def _run(run: Run) -> dict[str, Any]:
    from xdpx.commands import batch

    folder = batch.output_folder(run)
    told = {
        "index": run.index,
        "folder": folder or run.values.get("save_dir"),
        "status": batch.stored_status(run) or None,
        "values": {key: run.values[key] for key in sorted(run.changed) if key in run.values},
    }
    if run.command == "x-prepro":
        told["data_size"] = read_meta(folder).get("data_size")
        told["findings"] = _json_of(io.join(folder, FILE))
    return told


def _json_of(path: str) -> Any:
    """Return the JSON content of a file; None if the file is missing or damaged."""
    if not io.isfile(path):
        return None
    with io.open(path, encoding="utf-8", errors="replace") as file:
        return _object(file.read())


def in_json(work: Callable[[LineResults], int]) -> int:
    """Do the work, print the JSON object, and return the exit code."""
    answer = LineResults()
    with _taken() as output:
        with outcomes.recorded() as errors:
            code = work(answer)
        sys.stdout.flush()
        output.seek(0)
        results, lines = _parts(output.read().decode("utf-8", "replace"))
    told = _told(code, errors, answer.jobs, results, lines)
    if len(answer.jobs) == len(results) == 1 and isinstance(results[0], dict) and not told.keys() & results[0].keys():
        told |= {**results[0], "results": []}
    _print(told)
    return code


def or_failure_in_json(work: Callable[[], int]) -> int:
    """Do work that prints JSON of its own, such as --dry, and return its exit code; if it fails, print the object."""
    with outcomes.recorded() as errors:
        code = work()
    if code:
        _print(_told(code, errors))
    return code


def _told(
    code: int,
    errors: Sequence[BaseException],
    jobs: Sequence[Done] = (),
    results: Sequence[Any] = (),
    lines: Sequence[str] = (),
) -> dict[str, Any]:
    from xdpx import __version__

    unrecorded = "the command line is invalid: see standard error" if code == outcomes.USER else ""
    error = "\n".join(str(error) or type(error).__name__ for error in errors) or unrecorded
    return {
        "xdpx": __version__,
        "exit_code": code,
        "faults": [_fault(fault) for error in errors if isinstance(error, ConfigError) for fault in error.faults],
        "error": redact(error) or None,
        "jobs": [done.as_json() for done in jobs],
        "results": list(results),
        "output": list(lines),
    }


def _print(told: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(told, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def _fault(fault: Fault) -> dict[str, Any]:
    place = fault.origin
    return {
        "key": fault.key, "problem": redact(fault.problem), "remedy": redact(fault.remedy),
        "file": place.file if place else None, "line": (place.line or None) if place else None,
    }  # fmt: skip


def _parts(text: str) -> tuple[list[Any], list[str]]:
    """Return (JSON values, other lines) of a text that is either one JSON value or lines, some of which are JSON."""
    whole = _object(text)
    if whole is not None:
        return [whole], []
    lines = [line for line in text.splitlines() if line.strip()]
    found = [(line, _object(line)) for line in lines]
    return [value for _, value in found if value is not None], [line for line, value in found if value is None]


def _object(text: str) -> Any:
    """Return the JSON object or array that the whole text is, else None."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


@contextmanager
def _taken() -> Generator[IO[bytes]]:
    """Redirect standard output of this process and its children into a temporary file, and yield that file."""
    with TemporaryFile() as taken:
        sys.stdout.flush()
        before = os.dup(1)
        os.dup2(taken.fileno(), 1)
        try:
            with (
                os.fdopen(os.dup(taken.fileno()), "w", encoding="utf-8", errors="replace") as text,
                redirect_stdout(text),
            ):
                yield taken
        finally:
            os.dup2(before, 1)
            os.close(before)
