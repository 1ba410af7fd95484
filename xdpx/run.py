"""Entry points: `python xdpx/run.py <command> <config> ...`, and the commands `x-run`, `x-prepro`, `x-train`, ..."""

from __future__ import annotations

import os
import sys

if sys.path and sys.path[0] and os.path.realpath(sys.path[0]) == os.path.dirname(os.path.realpath(__file__)):
    # Python puts the folder of a script first on the path, where xdpx/tokenizers would shadow the library tokenizers.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from xdpx.utils import collecting, utf8

if TYPE_CHECKING:
    from xdpx.commands.answer import Done
    from xdpx.commands.command_line import Job, Options
    from xdpx.config.faults import Fault

T = TypeVar("T")


def main(words: Sequence[str] | None = None) -> int:
    """Run a command line (default: that of this process), and return the exit code."""
    given = list(sys.argv[1:] if words is None else words)
    if "--version" in given[:2]:
        from xdpx import __version__

        print(f"xdpx {__version__}")
        return 0
    if given[:1] == ["x-exp"]:  # has its own command line
        from xdpx.commands.experiment import answered

        return answered(given[1:])
    if given[:1] == ["x-io"] and "--json" not in given:  # starts faster without the imports below
        return _own_words("x-io", given[1:])
    from xdpx.commands.outcomes import exit_code
    from xdpx.utils.progress import quietly

    if given[:1] == ["x-submit"]:
        return _submit(given)
    if "--completion" in given[:2]:
        from xdpx.commands.completion import main as completion

        return exit_code(lambda: completion(" ".join(given[given.index("--completion") + 1 :])))
    verbose = "--verbose" in given
    with quietly(wanted="--quiet" in given):
        if "--json" in given:
            from xdpx.commands.answer import in_json, or_failure_in_json

            if {"--dry", "--schema", "--help", "-h"} & set(given):
                return or_failure_in_json(lambda: exit_code(lambda: _line(given, []), verbose=verbose))
            return in_json(lambda answer: exit_code(lambda: _line(given, answer.jobs), verbose=verbose))
        return exit_code(lambda: _line(given, []), verbose=verbose)


def _submit(given: list[str]) -> int:
    """Run x-submit; the words after `--` are only for the commands that it submits."""
    from xdpx.commands.answer import Done, LineResults, in_json
    from xdpx.commands.outcomes import exit_code

    own = given[: given.index("--")] if "--" in given else given

    def work(answer: LineResults) -> int:
        answer.jobs.append(done := Done("x-submit"))
        done.exit_code = exit_code(lambda: _own_words("x-submit", given[1:]), verbose="--verbose" in own)
        return done.exit_code

    return in_json(work) if "--json" in own else work(LineResults())


def _line(words: list[str], results: list[Done]) -> int:
    """Run a command line. The result of each command is added to `results`, for --json."""
    from xdpx.commands.command_line import LOOKING_ON, parse
    from xdpx.config.user_modules import load_user_modules
    from xdpx.utils import io

    io.when_remote(load_user_modules)  # they may provide credentials
    jobs, options = _with_own_names(lambda: parse(words))
    if options.help:
        return _with_own_names(lambda: _help([job.command for job in jobs], options.topic))
    if not {job.command for job in jobs} <= LOOKING_ON or any("://" in word for word in words):
        load_user_modules()
    if options.schema:
        return _schema([job.command for job in jobs])
    return _dry(jobs, options) if options.dry else _do(jobs, options, results)


def _with_own_names(work: Callable[[], T]) -> T:
    """Call `work`; if it raises ConfigError, such as for an unknown name, import the user's modules and retry."""
    from xdpx.config.faults import ConfigError
    from xdpx.config.user_modules import load_user_modules

    try:
        return work()
    except ConfigError:
        if not load_user_modules():
            raise
    return work()


def _do(jobs: list[Job], options: Options, results: list[Done]) -> int:
    """Check all commands, then run them in order. The first failure ends the line, unless `--keep-going` is set."""
    from xdpx.commands.answer import Done
    from xdpx.commands.chain import check_line
    from xdpx.commands.outcomes import INTERRUPTED, PREEMPTED, exit_code

    check_line(jobs)
    failed = 0
    for job in jobs:
        if options.json and job.command == "x-eval":
            job.overrides.append("print_json=true")
        done = Done(job.command, job.config)
        results.append(done)
        code = done.exit_code = exit_code(partial(_one, job, options, done), verbose=options.verbose)
        failed = failed or code
        if code and (not options.keep_going or code in {INTERRUPTED, PREEMPTED}):
            break
    return failed


def _one(job: Job, options: Options, done: Done) -> int:
    """Run one command; its config is read again, because earlier commands may have changed what it depends on."""
    from xdpx.commands import batch
    from xdpx.commands.chain import runs_of
    from xdpx.config.faults import found_in

    with found_in(job.source):
        if job.reads_own_words:
            return _own_words(job.command, job.words)
        runs = done.runs = runs_of(job)
        return batch.run_all(runs, jobs=options.jobs, keep_going=options.keep_going, verbose=options.verbose)


def _dry(jobs: list[Job], options: Options) -> int:
    from xdpx.commands.chain import check_line
    from xdpx.config.printing import json_text, runs_text

    hindrances: list[Fault] = []
    checked = check_line(jobs, hindrances=hindrances)
    for fault in hindrances:
        sys.stderr.write(f"to start it: {fault}\n")
    if options.json:
        print(json_text([run for runs in checked for run in runs or []]))
        return 0
    for job, runs in zip(jobs, checked, strict=True):
        if not job.reads_own_words:
            later = f"{job}: will be checked when the commands before it have run"
            print(runs_text(runs) if runs else later)
            for run in runs or ():
                command = run.picked("command")(run)
                if hasattr(command, "outlook"):  # it can estimate its amount of work
                    print(command.outlook())
    return 0


def _help(commands: list[str], topic: str) -> int:
    from xdpx.commands.command_line import usage
    from xdpx.config.help import command_help, topic_help

    if topic:
        print(topic_help(topic, commands))
    elif commands:
        print("\n\n".join(command_help(command) for command in commands))
    else:
        print(usage())
    return 0


def _schema(commands: list[str]) -> int:
    from xdpx.config.schema import schema_text

    for command in commands:
        print(schema_text(command))
    return 0


def _own_words(command: str, words: list[str]) -> int:
    if command != "x-script":  # whose words may belong to the user's own program
        kept_back = {"--quiet", "--json"} if command in {"x-io", "x-serve", "x-board"} else {"--quiet"}
        words = [word for word in words if word not in kept_back]
    if command in {"x-run", "x-init"}:
        from xdpx.commands import first_run

        return first_run.ENTRIES[command](words)
    if command == "x-io":
        from xdpx.commands.io import main as own_main
    elif command == "x-check":
        from xdpx.commands.check import main as own_main
    elif command == "x-submit":
        from xdpx.commands.submit import main as own_main
    elif command == "x-board":
        from xdpx.commands.board import main as own_main
    elif command == "x-serve":
        from xdpx.commands.server import main as own_main
    else:
        from xdpx.commands.script import main as own_main
    return own_main(words)


def _door(command: str) -> int:
    utf8.ensure()
    collecting.rarely()
    return main([command, *sys.argv[1:]])


def x_run() -> int:
    """Preprocess a file, then train and evaluate a model."""
    return _door("x-run")


def x_init() -> int:
    """Write the configs for a file, or list the families of configs."""
    return _door("x-init")


def x_prepro() -> int:
    """Preprocess raw text."""
    return _door("x-prepro")


def x_train() -> int:
    """Train a model."""
    return _door("x-train")


def x_tune() -> int:
    """Search for better hyperparameters."""
    return _door("x-tune")


def x_eval() -> int:
    """Evaluate a model."""
    return _door("x-eval")


def x_pred() -> int:
    """Predict with a model."""
    return _door("x-pred")


def x_viz() -> int:
    """Plot runs."""
    return _door("x-viz")


def x_board() -> int:
    """Show runs in a browser."""
    return _door("x-board")


def x_serve() -> int:
    """Serve trained models."""
    return _door("x-serve")


def x_io() -> int:
    """Handle files, local and remote ones."""
    return _door("x-io")


def x_check() -> int:
    """Examine the data and the plan of a run."""
    return _door("x-check")


def x_submit() -> int:
    """Submit commands to a cluster."""
    return _door("x-submit")


def x_script() -> int:
    """Run a script."""
    return _door("x-script")


if __name__ == "__main__":
    utf8.ensure()
    collecting.rarely()
    sys.exit(main())
