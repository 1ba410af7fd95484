"""Make the profile for profile-guided scheduling (PGLE) from a trace, or check in a log whether one was used.

Usage: x-script pgle_profile DIR             make profile.pb from the newest trace below a job's folder
       x-script pgle_profile --used LOG...   tell from the stderr of a run whether XLA used its profile

  1. x-exp NAME --job_log_dir=DIR --pgle=profile                traces some updates, on an NVIDIA GPU
  2. x-script pgle_profile DIR                                  prints where profile.pb is
  3. x-exp NAME --job_log_dir=DIR2 --pgle=PROFILE 2> run.log    schedules by it
  4. x-script pgle_profile --used run.log                       exits with 1 if it was not used
"""

from __future__ import annotations

from collections.abc import Sequence

from xdpx.commands.script_arguments import need_paths, read_arguments
from xdpx.utils import io

NAME = "pgle_profile"
USAGE = "x-script pgle_profile DIR | --used LOG..."


def main(argv: Sequence[str]) -> int:
    """Make a profile, or check logs for its use."""
    arguments = read_arguments(NAME, argv, flags=["--used"])
    if "--used" in arguments.flags:
        need_paths(NAME, arguments, USAGE)
        return max(_tell(path) for path in arguments.paths)
    need_paths(NAME, arguments, USAGE, exactly=1)
    from xdpx.commands.experiment import with_extra
    from xdpx.engines.spmd.pgle import make_profile

    path = with_extra(lambda: make_profile(arguments.paths[0]))
    print(path)
    print(f"Use it: x-exp NAME --job_log_dir=DIR --pgle={path} 2> run.log")
    return 0


def _tell(path: str) -> int:
    from xdpx.engines.spmd.pgle import use_in

    with io.open(path, errors="replace") as file:
        use = use_in(file)
    print(f"{path}: {use.text}")
    return 0 if use.used else 1
