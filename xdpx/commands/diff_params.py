"""Print the parameters in which two runs, or a run and a config, differ.

Usage: x-script diff_params LEFT RIGHT

  LEFT, RIGHT   a folder that holds args.py (a run, whose newest parameters are taken, or preprocessed data), a folder
                of a Trainer or of x-exp, an args.py itself, or a config

Lines: `-- key: value` only left, `++ key: value` only right, `+- key: left -> right` in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdpx.commands.script_arguments import need_paths, read_arguments
from xdpx.config.faults import ConfigError, Fault
from xdpx.utils import io

NAME = "diff_params"
USAGE = "x-script diff_params LEFT RIGHT"


def main(argv: Sequence[str]) -> int:
    """Print the differences, or that there are none."""
    from xdpx.config.args_file import differences

    arguments = read_arguments(NAME, argv)
    need_paths(NAME, arguments, USAGE, exactly=2)
    left, right = (read_settings(path) for path in arguments.paths)
    lines = differences(left, right)
    print("\n".join(lines) if lines else "no parameter differs")
    return 0


def read_settings(path: str) -> dict[str, Any]:
    """Return the flat parameters of a run folder, an args.py or a config. Raises ConfigError if there are none."""
    from xdpx.commands.first_difference import settings_of
    from xdpx.config.stored_args import read_args

    if not io.isdir(path) and not path.endswith(".py"):
        return _config_values(path)
    found = read_args(path) if io.isfile(path) else settings_of(path)
    if not found:
        fault = Fault(path, "contains no args.py.", "Give a run's folder, an args.py or a config.")
        raise ConfigError(f"x-script {NAME}", [fault])
    return found


def _config_values(path: str) -> dict[str, Any]:
    """Return the values of a config with its defaults. Paths are not checked: an existing save_dir is no fault."""
    from xdpx.config.loading import load
    from xdpx.config.reading import read_runs

    raw = read_runs(path)
    if len(raw) > 1:
        fault = Fault(path, f"describes {len(raw)} runs.", "Compare one run: name its folder instead.")
        raise ConfigError(f"x-script {NAME}", [fault])
    command = "x-prepro" if "data_source" in raw[0].values else "x-train"
    return dict(load(path, command, paths=False)[0].values)
