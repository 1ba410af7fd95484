"""Parse the words of a command line into jobs and options. Every unknown word is a fault."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from xdpx.commands.flags import as_override, take_setting, types_of, with_hyphens
from xdpx.config import catalogue
from xdpx.config.config_files import SUFFIXES
from xdpx.config.faults import ConfigError, Fault, nearest

WORD_COMMANDS = ("x-run", "x-init", "x-check", "x-io", "x-script", "x-submit", "x-board", "x-serve")
"""Commands that parse their own words."""
TAKES_FOLDERS = "x-viz"
"""The command that also accepts folders instead of a config."""

LOOKING_ON = frozenset({*WORD_COMMANDS, "x-viz"})
"""Commands that do not import users' modules; scripts that build a user's model import them themselves."""

FLAGS = {
    "--dry": "check everything and print each run with all its values, then stop",
    "--json": "print one JSON object with the results, and nothing else; with --dry an array, an object for each run",
    "--help": "explain a command; with a word after it, one key or one registered name",
    "--schema": "print the JSON schema of a command's configs, for editors",
    "--jobs": "N: how many runs of a loop to run in parallel (1)",
    "--only": "N: do only the N-th run of a config with several, as in a job array on a cluster",
    "--resumable": "x-train: resume=auto, unless the config sets resume, overwrite or auto_suffix",
    "--keep-going": "when a run fails, continue with the others",
    "--verbose": "show tracebacks and warnings in full",
    "--quiet": "print warnings and results only; log files hold every line",
    "--version": "print the version",
    "--completion": "bash, zsh or fish: print a script that completes commands, keys, names and config files",
}


@dataclass(frozen=True)
class Elsewhere:
    """How the place to which x-submit sends a command starts it.

    Attributes:
        processes: of x-train, which something else starts: srun, or a script with the variables of torchrun.
        machines: on which these are.
        by_srun: whether it is srun.
        each_alone: whether each run of its config is a task of its own.
    """

    processes: int = 1
    machines: int = 1
    by_srun: bool = False
    each_alone: bool = False


@dataclass
class Job:
    """One command of a line: its config and overrides, or for commands such as x-io and x-script its own words.

    Without a config the overrides are the whole config. `only` is the number of the one run to do, from 1; `resumable`
    means that the line may be started again to resume; `elsewhere` is how the place to which it is sent starts it.
    """

    command: str
    config: str = ""
    overrides: list[str] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    only: int | None = None
    resumable: bool = False
    elsewhere: Elsewhere = Elsewhere()

    @property
    def reads_own_words(self) -> bool:
        """Whether the command parses its own words instead of taking a config."""
        return self.command in {*WORD_COMMANDS, "x-exp"}  # of which x-submit alone makes jobs

    def __str__(self) -> str:
        return " ".join([self.command, *([self.config] if self.config else self.words[:1])])

    @property
    def source(self) -> str:
        """Where its faults are looked for first: its config, or what was typed."""
        return self.config or str(self)


@dataclass
class Options:
    """The flags that apply to the whole line."""

    dry: bool = False
    json: bool = False
    help: bool = False
    topic: str = ""
    schema: bool = False
    jobs: int = 1
    only: int | None = None
    resumable: bool = False
    keep_going: bool = False
    verbose: bool = False
    quiet: bool = False
    version: bool = False


def parse(words: Sequence[str]) -> tuple[list[Job], Options]:
    """Parse the words of a command line, without the program's name.

    Raises:
        ConfigError: with every fault of the line.
    """
    reader = _Reader(list(words), tuple(catalogue.names("command")))
    reader.read()
    if reader.faults:
        raise ConfigError("command line", reader.faults)
    return reader.jobs, reader.options


class _Reader:
    def __init__(self, words: list[str], commands: tuple[str, ...]) -> None:
        self.words = words
        self.commands = commands
        self.jobs: list[Job] = []
        self.options = Options()
        self.faults: list[Fault] = []
        self.folders: dict[int, list[str]] = {}

    def read(self) -> None:
        while self.words:
            word = self.words.pop(0)
            if word.startswith("-") and word != "-":
                self.flag(word)
            elif word in WORD_COMMANDS:
                self.jobs.append(Job(word, words=self.own_words(word)))
            elif word in self.commands:
                self.jobs.append(Job(word))
            elif with_hyphens(word):
                self.faults.append(Fault(word, "begins with a dash, not with hyphens.", f"Write {with_hyphens(word)}."))
            else:
                self.plain(word)
        self.check_whole()

    def own_words(self, command: str) -> list[str]:
        """Take the words up to the next command. For x-script every word that begins with `x-` is the next command."""
        known = {*self.commands, *WORD_COMMANDS}
        ends = (i for i, word in enumerate(self.words) if word in known or (command == "x-script" and word[:2] == "x-"))
        end = next(ends, len(self.words))
        taken, self.words = self.words[:end], self.words[end:]
        return taken

    def flag(self, word: str) -> None:
        name, separator, value = word.partition("=")
        if name == "-h":
            name = "--help"
        if name in {"--jobs", "--only"}:
            self.set_number(name, value if separator else (self.words.pop(0) if self.words else ""))
        elif name not in FLAGS:
            self.key_or_misspelt(word, name)
        elif separator:
            self.faults.append(Fault(word, "takes no value.", f"Write {name}."))
        elif name == "--help":
            self.options.help = True
            self.options.topic = self.topic()
        else:
            setattr(self.options, name.removeprefix("--").replace("-", "_"), True)

    def key_or_misspelt(self, word: str, name: str) -> None:
        """Take `--key value` as an override of the last command, or record the fault of the word."""
        job = self.jobs[-1] if self.jobs else Job("")
        command = job.command if job.command in self.commands else ""
        if name in {"--config", "-c"} and command and not job.config and not types_of("config", command):
            job.config = word.partition("=")[2] or (self.words.pop(0) if self.words else "")
            return
        try:
            setting = take_setting(word, self.words, flags=FLAGS, command=command) if self.jobs else ""
        except ConfigError as error:
            self.faults.extend(error.faults)
            return
        if setting:
            job.overrides.append(setting)
            return
        near = nearest(name, FLAGS)
        remedy = f"Did you mean '{near}'?" if near else f"Use one of: {', '.join(FLAGS)}."
        self.faults.append(Fault(word, "no such flag.", remedy))
        if near == "--jobs" and self.words and self.words[0].isdecimal():
            self.words.pop(0)

    def topic(self) -> str:
        """Take the word after --help, if it can be a topic."""
        follows = self.words and not self.words[0].startswith("-") and self.words[0] not in self.commands
        return self.words.pop(0) if follows else ""

    def set_number(self, name: str, text: str) -> None:
        if text.isdecimal() and int(text) > 0:
            setattr(self.options, name.removeprefix("--"), int(text))
        else:
            self.faults.append(Fault(name, f"is '{text}'.", f"Use a whole number above 0, e.g. {name} 2."))

    def plain(self, word: str) -> None:
        job = self.jobs[-1] if self.jobs else None
        override = as_override(word) if job is not None else ""
        if job is not None and override:
            job.overrides.append(override)
        elif job is not None and job.command == TAKES_FOLDERS and _is_folder(word):
            job.overrides = [*self.folders_with(job, word)]
        elif job is not None and word and not job.config:
            job.config = word
        else:
            self.faults.append(self.stray(word, job))
            if job is None or word.startswith("x"):
                self.jobs.append(Job(word))  # so that the words that follow are read as its own

    def folders_with(self, job: Job, word: str) -> Iterator[str]:
        """Yield the overrides of a job with one more folder in `save_dir`, a list of all folders given so far."""
        self.folders.setdefault(id(job), []).append(word)
        yield from (each for each in job.overrides if not each.startswith("save_dir=["))
        yield f"save_dir={json.dumps(self.folders[id(job)], ensure_ascii=False)}"

    def stray(self, word: str, job: Job | None) -> Fault:
        near = nearest(word, (*self.commands, *WORD_COMMANDS))
        if job is None or (near and word.startswith("x")):
            listed = f"Use one of: {', '.join((*self.commands, *WORD_COMMANDS))}."
            return Fault(word or "''", "no such command.", f"Did you mean '{near}'?" if near else listed)
        remedy = f"After '{job}' write key=value, a flag or the next command."
        key, colon, value = word.partition(":")
        if types_of(key, job.command if job.command in self.commands else ""):
            value = value if colon else self.words.pop(0) if self.words and "=" not in self.words[0] else "VALUE"
            remedy = f"Write {key}={value}."
        return Fault(word or "''", "is not expected here.", remedy)

    def check_whole(self) -> None:
        if self.options.schema and not any(job.command in self.commands for job in self.jobs):
            self.faults.append(Fault("--schema", "needs a command.", "Write e.g. x-train --schema."))
        if self.options.help or self.options.schema or self.options.version or self.faults:
            return
        if not self.jobs:
            self.faults.append(Fault("command", "is missing.", USAGE))
        if self.options.only and len(self.jobs) > 1:
            self.faults.append(
                Fault("--only", "selects a run of one config, but there are several configs.", "Leave it out.")
            )
        for job in self.jobs:
            job.only, job.resumable = self.options.only, self.options.resumable
            if job.command in self.commands and not job.config and not job.overrides:
                remedy = f"Write: {job.command} <config> [key=value ...], or key=value alone."
                self.faults.append(Fault(job.command, "has no config.", remedy))


def _is_folder(word: str) -> bool:
    """Return whether a word names a folder, or the folders inside one, and not a config."""
    from xdpx.utils import io

    folder = word.removesuffix("**/*").removesuffix("/*")
    return io.isdir(folder) and not any(io.isfile(word + suffix) for suffix in SUFFIXES)


def usage() -> str:
    """Return the help text: all commands and flags."""
    from xdpx import __version__

    docs = {entry.name: entry.doc for entry in catalogue.entries("command") if " " not in entry.name}
    docs = {
        "x-run": "From a file to a scored model, in one command.",
        "x-init": "Write only its configs; --list: families.",
        "x-check": "Check the data and the plan of a run for problems.",
    } | docs
    docs |= {"x-io": "Copy, list and inspect files on any filesystem.", "x-script": "Run one of the scripts."}
    docs |= {"x-exp": "Inspect, plan and run an experiment on JAX."}
    docs |= {"x-board": "Watch all runs below a folder in a browser, while they train."}
    docs |= {"x-serve": "Answer requests over HTTP with trained models."}
    docs |= {"x-submit": "Submit commands to Slurm, Ray, Kubernetes, PAI or the background."}
    lines = [
        f"xdpx {__version__}",
        "",
        "  <command> <config> [key=value ...] [<command> <config> ...]     (the config may be left out)",
        "",
        "commands (x-train --help lists the keys of one)",
        *(f"  {name.ljust(9)} {doc}" for name, doc in docs.items()),
        "",
        "flags",
        *(f"  {name.ljust(12)} {doc}" for name, doc in FLAGS.items()),
    ]
    return "\n".join(lines)


USAGE = "Write: <command> <config> [key=value ...] [<command> <config> ...]; --help lists the commands."
