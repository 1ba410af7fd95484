"""`x-check CONFIG`: find problems of the data and the settings of a run before it starts. Nothing is written.

Usage: x-check CONFIG [key=value ...] [page=FILE] [rows=200000] [noise_rows=20000] [measure=true] [--json]

CONFIG is one of x-prepro or of x-train; for the latter the raw files that its data_dir was made from are examined.
Findings are printed worst first, with the rows that show them. `page` names an HTML file for all of it; `rows` is the
number of rows examined closely, `noise_rows` the number searched for wrong labels (0: none); `measure: false` skips
the updates that estimate how long a training will take. If a config has several runs, each is examined; a finding
that an earlier run shares is printed once, and updates are taken for the first run only. The exit code is 2 if
something would stop a run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from datetime import datetime
from time import monotonic
from typing import Any

from xdpx.commands.chain import runs_of
from xdpx.commands.check_run import about_place, about_training
from xdpx.commands.command_line import Job
from xdpx.commands.flags import with_settings
from xdpx.commands.outcomes import FINISHED, USER
from xdpx.config.args_file import ARGS_FILE
from xdpx.config.faults import ConfigError, Fault
from xdpx.config.loading import RUN_ONLY_KEYS, Run, resolve
from xdpx.config.reading import read_runs
from xdpx.config.stored_args import read_prepro_args
from xdpx.config.user_modules import load_user_modules
from xdpx.datasets.data_files import splits
from xdpx.datasets.examining.examination import MOST_ROWS, NOISE_ROWS, Examination, examine
from xdpx.datasets.examining.result import plain_result
from xdpx.datasets.findings.finding import Finding, Findings
from xdpx.reports.check_text import as_text
from xdpx.utils import commit, io
from xdpx.utils.progress import quietly

FLAGS = ("--json", "--help", "-h", "--verbose", "--quiet")


@dataclass
class CheckOptions:
    """The options given on the command line."""

    config: str
    settings: list[str] = field(default_factory=list)
    page: str = ""
    rows: int = MOST_ROWS
    noise_rows: int = NOISE_ROWS
    measure: bool = True
    json: bool = False


def main(argv: Sequence[str]) -> int:
    """Examine the runs, print the findings, and return the exit code."""
    if not argv or {"--help", "-h"} & set(argv):
        print((__doc__ or "").strip())
        return FINISHED
    options = read_words(argv)
    load_user_modules()
    with redirect_stdout(sys.stderr), quietly(wanted=True):
        told = look(options)
    print(json.dumps(told, ensure_ascii=False) if options.json else as_text(told), end="\n" if options.json else "")
    if options.page:
        _write_page(options, told)
    return USER if any(each["severity"] == "fault" for each in told["findings"]) else FINISHED


def read_words(words: Sequence[str]) -> CheckOptions:
    """Parse the words of a command line.

    Raises:
        ConfigError: with every fault found.
    """
    words = with_settings(words, flags=FLAGS)
    plain = [word for word in words if not word.startswith("-") and "=" not in word]
    faults = [
        Fault(word, "no such flag.", f"Use one of: {', '.join(FLAGS)}.")
        for word in words
        if word.startswith("-") and word not in FLAGS
    ]
    given = dict(word.split("=", 1) for word in words if "=" in word and not word.startswith("-"))
    if len(plain) != 1:
        faults.append(Fault("x-check", "takes one config.", "Write: x-check prepro.hjson [key=value ...]"))
    numbers = {}
    for key, default in (("rows", MOST_ROWS), ("noise_rows", NOISE_ROWS)):
        text = given.pop(key, str(default))
        if not text.isdecimal() or (key == "rows" and not int(text)):
            faults.append(Fault(key, f"is '{text}'.", f"Use a whole number, e.g. {key}={default}."))
        numbers[key] = int(text) if text.isdecimal() else default
    measure = given.pop("measure", "true").lower()
    if measure not in {"true", "false"}:
        faults.append(Fault("measure", f"is '{measure}'.", "Use true or false."))
    page = given.pop("page", "")
    if page and (io.isdir(page) or not io.is_writable(page)):
        faults.append(Fault("page", f"'{page}' cannot be written.", "Name another file, such as check.html."))
    if faults:
        raise ConfigError("command line", faults)
    settings = [f"{key}={value}" for key, value in given.items()]
    return CheckOptions(plain[0], settings, page, **numbers, measure=measure == "true", json="--json" in words)


def look(options: CheckOptions) -> dict[str, Any]:
    """Return the findings in the form that `--json` prints.

    Raises:
        ConfigError: the config itself is invalid.
    """
    start = monotonic()
    values = read_runs(options.config, options.settings)[0].values
    command = "x-prepro" if "data_source" in values else "x-train"
    hindrances: list[Fault] = []
    runs = runs_of(Job(command, options.config, options.settings), hindrances=hindrances, in_order=False)
    first = runs[0]
    plan = Findings(first.source, patient=True)
    plan.add(
        Finding("refused", "warning", first.source, f"{each.key}: {each.problem}", each.remedy) for each in hindrances
    )
    known: dict[str, Examination] = {}
    seen, outlook, found = _look_at(first, command, options, known, measure=options.measure)
    every = [*plan.worst_first, *found]
    for number, run in enumerate(runs[1:], 2):
        _, _, found = _look_at(run, command, options, known, measure=False)
        told = {(each.code, each.problem) for each in every}
        place = f"run {number} of {len(runs)}"
        every += [
            replace(each, place=f"{place}: {each.place}") for each in found if (each.code, each.problem) not in told
        ]
    ranked = sorted(dict.fromkeys(every), key=lambda each: each.rank)
    return plain_result(options.config, command, ranked, seen, outlook, seconds=monotonic() - start)


def _look_at(
    run: Run, command: str, options: CheckOptions, known: dict[str, Examination], *, measure: bool
) -> tuple[Examination | None, Any, list[Finding]]:
    """Examine one run of the config; data that an earlier run also reads are not examined again.

    Args:
        run: of the command.
        command: x-prepro or x-train.
        options: how many rows to examine.
        known: examinations of data, by the settings that determine them; new ones are added.
        measure: whether to take some updates of a training.
    """
    plan = Findings(run.source, patient=True)
    prepro = run if command == "x-prepro" else _preprocessing(run, plan)
    seen = None
    if prepro is not None:
        reads = {key: value for key, value in prepro.values.items() if key != "data_dir" and key not in RUN_ONLY_KEYS}
        key = json.dumps(reads, sort_keys=True, default=str)
        if key not in known:
            known[key] = examine(prepro, rows=options.rows, noise_rows=options.noise_rows)
        seen = known[key]
    plan.add(about_place(run, seen))
    outlook = None
    if command == "x-train":
        outlook, found = about_training(run, measure=measure)
        plan.add(found)
    return seen, outlook, [*plan.worst_first, *(seen.findings.worst_first if seen is not None else ())]


def _preprocessing(run: Run, plan: Findings) -> Run | None:
    """Return the run of x-prepro that made the data of a training; None if its raw files cannot be read any more."""
    folder = str(run.values["data_dir"])
    path = io.join(folder, ARGS_FILE)
    if not io.isfile(path):
        problem = "does not say what it was made from, so the raw data cannot be checked."
        plan.add([Finding("path", "note", folder, problem, "Check the config of x-prepro.")])
        return None
    prepro = resolve(read_prepro_args(path), "x-prepro", source=path, strict=False, paths=False)
    try:
        splits(prepro.values["data_source"], prepro.values["data_files"])
    except (ConfigError, OSError) as error:
        told = "; ".join(each.problem.removesuffix(".") for each in getattr(error, "faults", ())) or str(error)
        problem = f"the raw files that it was made from no longer exist ({' '.join(told.split())[:160]})."
        plan.add([Finding("path", "note", folder, problem, "Check the config of x-prepro where the files are.")])
        return None
    return prepro


def _write_page(options: CheckOptions, told: dict[str, Any]) -> None:
    from xdpx import __version__
    from xdpx.reports.check_page import sections
    from xdpx.reports.page import render

    made = f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z} by xdpx {__version__}"
    facts = {"config": options.config, "found": told["summary"], "made": made}
    commit.write_text(options.page, render(f"Check of {io.name(options.config)}", facts, sections(told)), own=False)
    sys.stderr.write(f"report: {options.page}\n")
