"""`bash pai.sh <command> <config> ... [-v 131 -w 1 -g 2 -c 4 -m 10]`: submit jobs to PAI by x-submit."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from xdpx.commands import submit
from xdpx.commands.command_line import Job
from xdpx.commands.outcomes import exit_code
from xdpx.commands.submit_line import commands
from xdpx.config.faults import ConfigError, Fault
from xdpx.config.user_modules import load_user_modules
from xdpx.launch import folders
from xdpx.launch.backends import pai
from xdpx.launch.submission import Record, Resources
from xdpx.utils import utf8

FLAGS = {
    "pt_version": ("v", "pytorch", "version of PyTorch: 100, 131, 151, 180"),
    "n_workers": ("w", "nodes", "workers, 1 to 8"),
    "n_gpus": ("g", "gpus", "GPUs of each worker, 1 to 8"),
    "n_cpus": ("c", "cpus", "CPU cores of each worker, 1 to 64"),
    "memory": ("m", "memory", "memory of each worker in GB, 2 to 128"),
    "v100": ("s", "v100", "y: V100 only, e.g. for mixed precision; n: whatever is free"),
    "tables": ("t", "tables", "odps://<project>/tables/<table>, commas between"),
    "test_root": ("r", "", "of the first XDPX's tests; they are no longer sent to PAI"),
}
"""{long flag: (short flag, field of Resources, help)}"""

ONLY_HERE = {"test": "make test", "benchmark": "make bench", "coverage": "pip install pytest-cov; pytest --cov xdpx"}
"""Targets that the first XDPX also sent to PAI, and what replaces them: jobs have the package, without its tests."""

SWITCHES = {"tensorflow": "install TensorFlow first, to read its checkpoints", "dry": "print what would be sent"}
ASKED = ("pytorch", "nodes", "gpus", "cpus", "memory", "v100")


def main(words: Sequence[str]) -> int:
    """Check the commands, ask for missing values, submit, and print the output of PAI. Return the exit code."""
    if not words or {"-h", "--help"} & set(words):
        print(usage())
        return 0
    rest, given = parse(words)
    load_user_modules()
    values = wanted(given, _of_configs(rest))
    dry = given.get("dry")
    line = [*rest, "--on", "pai", *(f"--{name}={value}" for name, value in values.items()), "--yes"]
    known = {record.name for record in folders.records()}
    code = submit.main([*line, "--dry"] if dry else line)
    sent = [record for record in folders.records() if record.name not in known]
    return code if code or dry or not sent else _follow(sent[-1])


def parse(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return (the words for x-submit, {field or switch: text}).

    Raises:
        ConfigError: a flag has no value, or is no longer supported.
    """
    rest, given, faults, left = list[str](), dict[str, str](), list[Fault](), list(words)
    short = {flag: name for name, (flag, _, _) in FLAGS.items()}
    no_values = {*commands(), *(f"-{each}" for each in short), *(f"--{each}" for each in (*FLAGS, *SWITCHES))}
    if left and left[0] in ONLY_HERE:
        remedy = f"Run it on a machine with the repository: {ONLY_HERE[left[0]]}."
        raise ConfigError("pai.sh", [Fault(left[0], "is not sent to PAI, where jobs have no tests.", remedy)])
    while left:
        word = left.pop(0)
        name, equals, text = word.lstrip("-").partition("=")
        name = short.get(name, name) if word.startswith("-") and not word.startswith("--") else name.replace("-", "_")
        if not word.startswith("-") or name not in {*FLAGS, *SWITCHES}:
            rest.append(word)
        elif name in SWITCHES:
            given[name] = "true"
        elif not equals and (not left or left[0] in no_values):
            faults.append(Fault(word, "has no value.", f"Write {word} VALUE: {FLAGS[name][2]}."))
        elif name == "test_root":
            left = left if equals else left[1:]
            faults.append(Fault(word, "says where tests write, which are not sent to PAI.", "Run them by `make test`."))
        else:
            given[FLAGS[name][1]] = text if equals else left.pop(0)
    if faults:
        raise ConfigError("pai.sh", faults)
    return rest, given


def _of_configs(words: Sequence[str]) -> dict[str, Any]:
    """Return the resources that the configs on a line request, such as `__gpu__`. x-submit reports their faults."""
    known, found = commands(), dict[str, Any]()
    for command, config in zip(words, words[1:], strict=False):
        if command in known and config not in known:
            found |= submit.of_configs([Job(command, config)])[0]
    return found


def wanted(given: Mapping[str, str], from_configs: Mapping[str, Any]) -> dict[str, str]:
    """Return {field: text} of all values that PAI needs: from flags, configs, answers and defaults.

    Raises:
        ConfigError: the number of workers or GPUs is missing, and there is no terminal to ask on.
    """
    values = {name: str(value) for name, value in from_configs.items()}
    values |= {name: value for name, value in given.items() if name != "dry"}
    missing = [name for name in ASKED if name not in values]
    if sys.stdin.isatty():
        return values | {name: ask(name) for name in missing}
    unknown = [Fault(pai.FLAGS[name], "is not given.", _text(name)) for name in missing if name not in pai.DEFAULTS]
    if unknown:
        raise ConfigError("pai.sh", unknown)
    taken = {name: pai.DEFAULTS[name] for name in missing}
    if taken:
        told = ", ".join(f"{name} {value} ({pai.FLAGS[name]})" for name, value in taken.items())
        sys.stderr.write(f"not given, so the defaults: {told}\n")
    return values | taken


def ask(name: str) -> str:
    """Ask on the terminal until the value is valid for PAI; an empty answer means the default."""
    default = pai.DEFAULTS.get(name, "1")
    while True:
        answer = input(f"{_text(name)} [{default}]: ").strip() or default
        trouble = trouble_of(name, answer)
        if not trouble:
            return answer
        print(trouble)


def trouble_of(name: str, text: str) -> str:
    """Return why PAI rejects a value, '' if it does not."""
    try:
        resources = Resources.model_validate({"gpus": 1, name: text})
    except ValidationError:
        return f"'{text}' is not a value for it."
    return next((str(fault) for fault in pai.bound_faults(resources)), "")


def _text(name: str) -> str:
    return next(text for _, field, text in FLAGS.values() if field == name)


def _follow(record: Record) -> int:
    """Print the output of PAI until the job has ended; Ctrl-C stops only the printing."""
    try:
        for line in pai.follow(record):
            print(line, flush=True)
    except KeyboardInterrupt:
        print(f"\nThe job keeps running: x-submit status|logs|cancel {record.id}")
        return 0
    return pai.exit_code_of(record)


def usage() -> str:
    """Return the help text of pai.sh."""
    flags = [f"  -{flag}, --{name.ljust(11)} {text}" for name, (flag, _, text) in FLAGS.items()]
    switches = [f"      --{name.ljust(11)} {text}" for name, text in SWITCHES.items()]
    lines = [
        "bash pai.sh <command> <config> [<command> <config> ...] [flags]", "", *flags, *switches, "",
        "Configs may say it: __pytorch__ __worker__ __gpu__ __cpu__ __memory__ __v100__; flags win. What is missing",
        "is asked for on a terminal; elsewhere -v, -c, -m and -s have defaults, and -w and -g must be given.",
    ]  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    utf8.ensure()
    words = sys.argv[1:]
    sys.exit(exit_code(lambda: main(words), verbose="--verbose" in words))
