"""Scripts that take a config, with loops, inheritance and `--dry` like any command."""

from __future__ import annotations

from collections.abc import Sequence

from xdpx.config.faults import ConfigError, Fault

FLAGS = ("--dry",)


def run_config(name: str, words: Sequence[str]) -> int:
    """Check every run of the config that the words name, and do them, or with `--dry` print them. Gives the exit code.

    Args:
        name: of the script; its parameters are registered as the command `x-script <name>`.
        words: a config, `key=value` words that win over it, and flags.

    Raises:
        ConfigError: with every fault.
    """
    from xdpx.commands import batch
    from xdpx.commands.script_arguments import need_paths, read_arguments
    from xdpx.config.loading import load
    from xdpx.config.printing import runs_text

    overrides = [word for word in words if "=" in word and not word.startswith("-")]
    arguments = read_arguments(name, [word for word in words if word not in overrides], flags=FLAGS)
    usage = f"x-script {name} CONFIG [key=value ...] [--dry]"
    if len(arguments.paths) > 1 or not overrides:
        need_paths(name, arguments, usage, exactly=1)
    runs = load(next(iter(arguments.paths), ""), f"x-script {name}", overrides, inspect=batch.inspect)
    if not runs:
        raise ConfigError(f"x-script {name}", [Fault("config", "stands for no run.", f"Usage: {usage}")])
    if "--dry" in arguments.flags:
        print(runs_text(runs))
        return 0
    return batch.run_all(runs)
