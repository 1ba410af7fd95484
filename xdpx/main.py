"""The door to experiments: `python -m xdpx.main --exp=NAME --job_log_dir=DIR`, and `x-exp NAME ...`."""

from __future__ import annotations

import os
import sys

if sys.path and sys.path[0] and os.path.realpath(sys.path[0]) == os.path.dirname(os.path.realpath(__file__)):
    # Run as a script, Python puts this folder first on the path, where our `tokenizers` would hide the library's.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))

from collections.abc import Sequence

from xdpx.utils import utf8


def main(words: Sequence[str] | None = None) -> int:
    """Do what the words of a command line ask for. Returns the exit code."""
    given = list(sys.argv[1:] if words is None else words)
    if "--version" in given:
        from xdpx import __version__

        print(f"xdpx {__version__}")
        return 0
    from xdpx.commands.experiment import main as own_main
    from xdpx.commands.outcomes import exit_code
    from xdpx.utils.progress import quietly

    asked = [word for word in given if word != "--quiet"]
    verbose = "--verbose" in given
    with quietly(wanted=len(asked) < len(given)):
        if "--json" in asked and not {"--plan", "--dry", "--help", "-h"} & set(asked):
            from xdpx.commands.answer import Done, in_json

            words = [word for word in asked if word != "--json"]

            def work(jobs: list[Done]) -> int:
                folder = next((word.partition("=")[2] for word in words if word.startswith("--job_log_dir=")), "")
                jobs.append(done := Done("x-exp", words[0] if words else "", folder=folder))
                done.exit_code = exit_code(lambda: own_main(words), verbose=verbose)
                return done.exit_code

            return in_json(lambda answer: work(answer.jobs))
        return exit_code(lambda: own_main(asked), verbose=verbose)


def x_exp() -> int:
    """Look at an experiment, plan it, run it."""
    utf8.ensure()
    return main()


if __name__ == "__main__":
    sys.exit(x_exp())
