"""Run programs of other systems (sbatch, ray, kubectl) with a time limit; errors quote their output."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from xdpx.config.faults import Fault
from xdpx.launch.submission import refusal

SECONDS_TO_ANSWER = 120.0


def absent(program: str, how: str) -> Iterator[Fault]:
    """Yield a fault if a program is not installed here; `how` says what to do."""
    if shutil.which(program) is None:
        yield Fault("--on", f"needs the program {program}, which is not on the PATH here.", how)


def ask(
    words: Sequence[str], *, what: str, remedy: str, given: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:  # fmt: skip
    """Run a program and return its standard output.

    Args:
        words: the program and its arguments.
        what: begins the error message, such as "Slurm did not take the job".
        remedy: ends it: what to do.
        given: its standard input.
        environment: variables added to those of this process.

    Raises:
        Refused: it failed, is not installed, or did not finish in time; the message quotes its output.
    """
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=SECONDS_TO_ANSWER, input=given,
            check=False, env={**os.environ, **(environment or {})},
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise refusal(what, words, f"nothing within {SECONDS_TO_ANSWER:g} seconds", remedy) from error
    except OSError as error:
        raise refusal(what, words, str(error), remedy) from error
    if done.returncode:
        raise refusal(what, words, done.stderr or done.stdout, remedy)
    return done.stdout
