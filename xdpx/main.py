"""Entry points of experiments: `python -m xdpx.main --exp=NAME --job_log_dir=DIR`, and `x-exp NAME ...`."""

from __future__ import annotations

import os
import sys

if sys.path and sys.path[0] and os.path.realpath(sys.path[0]) == os.path.dirname(os.path.realpath(__file__)):
    # Python puts the folder of a script first on the path, where xdpx/tokenizers would shadow the library tokenizers.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))

from collections.abc import Sequence

from xdpx.utils import collecting, utf8


def main(words: Sequence[str] | None = None) -> int:
    """Run a command line (default: that of this process), and return the exit code."""
    given = list(sys.argv[1:] if words is None else words)
    if "--version" in given:
        from xdpx import __version__

        print(f"xdpx {__version__}")
        return 0
    from xdpx.commands.experiment import answered

    return answered(given)


def x_exp() -> int:
    """Inspect, plan or run an experiment."""
    from xdpx.commands.experiment import leave

    utf8.ensure()
    collecting.rarely()
    code = main()
    leave(code)
    return code


if __name__ == "__main__":
    sys.exit(x_exp())
