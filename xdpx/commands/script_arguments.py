"""Parse the words after `x-script <name>`: paths, keywords and flags, or a config as for any command."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from xdpx.commands.flags import with_hyphens, with_settings
from xdpx.config.faults import ConfigError, Fault, nearest
from xdpx.utils import io

if TYPE_CHECKING:
    from xdpx.inference.plan import InferenceParameters


class ScriptArguments(NamedTuple):
    """The words of one call, by kind."""

    paths: list[str]
    keywords: list[str]
    flags: frozenset[str]


def read_arguments(
    name: str, words: Sequence[str], *, flags: Sequence[str] = (), keywords: bool = False
) -> ScriptArguments:
    """Sort the words by kind. Raises ConfigError for a flag or a keyword that the script does not take."""
    given = [word for word in words if word.startswith("--")]
    short = [word for word in words if word.startswith("-") and not word.startswith("--") and len(word) > 1]
    unknown = [word for word in given if word not in flags] + ([] if keywords else short)
    printed = [word for word in words if with_hyphens(word)]
    faults = [_unknown_flag(word, flags) for word in unknown]
    faults += [_dashed(word, flags, keywords=keywords) for word in printed]
    if faults:
        raise ConfigError(f"x-script {name}", faults)
    paths = [word for word in words if word not in given and word not in short]
    return ScriptArguments(paths, [word[1:] for word in short], frozenset(given))


def need_paths(name: str, arguments: ScriptArguments, usage: str, *, exactly: int | None = None) -> None:
    """Raise ConfigError with the usage unless there are `exactly` so many paths, or without it at least one."""
    count = len(arguments.paths)
    if count == exactly or (exactly is None and count):
        return
    wanted = f"exactly {exactly} paths" if exactly else "at least one path"
    raise ConfigError(f"x-script {name}", [Fault("arguments", f"{count} given, it takes {wanted}.", f"Usage: {usage}")])


def _unknown_flag(word: str, flags: Sequence[str]) -> Fault:
    near = nearest(word, flags)
    choices = f"It takes {', '.join(flags)}." if flags else "It takes no flags."
    return Fault(word, "no such flag.", f"Did you mean {near}?" if near else choices)


def _dashed(word: str, flags: Sequence[str], *, keywords: bool) -> Fault:
    """Return the fault of a word that begins with a dash, as printed text has it in place of a hyphen."""
    flag = with_hyphens(word)
    meant = flag if flag in flags or not keywords else flag[1:]
    return Fault(word, "begins with a dash, not with hyphens.", f"Write {meant}.")


def unfit_name(key: str, name: str) -> list[tuple[str, str]]:
    """Return the conflict of a key for a file name in out_dir: it is empty, or contains a path separator."""
    if name.strip(" .") and not {"/", "\\"} & set(name):
        return []
    return [(key, f"is '{name}'. Use a name without / and \\; the folder is out_dir.")]


FLAGS = ("--dry",)


def faults_of_paths(
    known: InferenceParameters, source: str, *, writes: str, ending: str = "", reads: Sequence[str]
) -> list[Fault]:
    """Return the faults of a script's output path and inputs, before a model is built.

    Args:
        known: the parameters of the script.
        source: the config, for messages.
        writes: the key of the file or folder to write.
        ending: required ending of its name.
        reads: the keys of splits or raw files to read.
    """
    from xdpx.inference.plan import find_input, make_plan

    found, path = [], getattr(known, writes)
    if not path.endswith(ending):
        found.append(Fault(writes, f"is '{path}'.", f"Name a file that ends with {ending}."))
    elif not io.is_writable(path):
        found.append(Fault(writes, f"'{path}' cannot be written.", "Choose another place."))
    try:
        plan = make_plan(known, source)
        for key in reads:
            find_input(getattr(known, key), plan, key, source)
    except ConfigError as error:
        found += error.faults
    return found


def _works_on(path: str) -> bool:
    """Return whether a word is the path of a data file: by its ending, or since the file is not a config."""
    from xdpx.config.config_files import SUFFIXES, is_raw_data

    if path.endswith(SUFFIXES) or any(io.isfile(path + suffix) for suffix in SUFFIXES):
        return False
    return is_raw_data(path) or io.isfile(path)


def run_on_paths(name: str, words: Sequence[str], *, key: str, usage: str, exactly: int | None = None) -> int:
    """Run a script for the runs or files that its words name, without a config. Return the exit code.

    Args:
        name: of the script.
        words: paths, `key=value` words and flags; a word with `=` that exists is a path.
        key: that takes the paths: a list, or with `exactly=1` one path; it may be given as `key=value` instead.
        usage: for errors.
        exactly: number of paths; None: at least one.

    Raises:
        ConfigError: with every fault.
    """
    words = with_settings(words, flags=("--dry",), command=f"x-script {name}")
    settings = [word for word in words if "=" in word and not io.exists(word)]
    arguments = read_arguments(name, [word for word in words if word not in settings], flags=("--dry",))
    if not any(word.startswith(f"{key}=") for word in settings):
        need_paths(name, arguments, usage, exactly=exactly)
        settings.append(f"{key}={arguments.paths[0] if exactly == 1 else json.dumps(arguments.paths)}")
    return run_config(name, [*settings, *arguments.flags])


def run_config(name: str, words: Sequence[str], *, file_key: str = "") -> int:
    """Check every run of a config, and perform them or, with `--dry`, print them. Return the exit code.

    Args:
        name: of the script; its parameters are registered as the command `x-script <name>`.
        words: a config, `key=value` words that override it, and flags.
        file_key: the key of the file that the script works on; its path may be given instead of a config.

    Raises:
        ConfigError: with every fault.
    """
    from xdpx.commands import batch
    from xdpx.config.loading import load
    from xdpx.config.printing import runs_text
    from xdpx.config.user_modules import load_user_modules

    load_user_modules()  # the model may be defined there
    words = with_settings(words, flags=FLAGS, command=f"x-script {name}")
    overrides = [word for word in words if "=" in word and not word.startswith("-")]
    arguments = read_arguments(name, [word for word in words if word not in overrides], flags=FLAGS)
    usage = f"x-script {name} {'FILE or ' if file_key else ''}CONFIG [key=value ...] [--dry]"
    if file_key and len(arguments.paths) == 1 and _works_on(arguments.paths[0]):
        overrides.append(f"{file_key}={arguments.paths.pop()}")
    if len(arguments.paths) > 1 or not overrides:
        need_paths(name, arguments, usage, exactly=1)
    runs = load(next(iter(arguments.paths), ""), f"x-script {name}", overrides, inspect=batch.inspect)
    if not runs:
        raise ConfigError(f"x-script {name}", [Fault("config", "describes no run.", f"Usage: {usage}")])
    if "--dry" in arguments.flags:
        print(runs_text(runs))
        return 0
    return batch.run_all(runs)
