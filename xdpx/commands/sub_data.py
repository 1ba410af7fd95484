"""Print the lines of one file that are missing in another.

Usage: x-script sub_data FILE OTHER

Lines are printed in the order of FILE, with repetitions. Files may be large, and local or remote.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from xdpx.commands.line_counts import counts_of, digest, lines_of
from xdpx.commands.script_arguments import need_paths, read_arguments

NAME = "sub_data"
USAGE = "x-script sub_data FILE OTHER"


def main(argv: Sequence[str]) -> int:
    """Print the lines."""
    arguments = read_arguments(NAME, argv)
    need_paths(NAME, arguments, USAGE, exactly=2)
    path, other = arguments.paths
    there = counts_of(NAME, other)
    for line in lines_of(NAME, path):
        if digest(line) not in there:
            sys.stdout.write(line.decode("utf-8", "replace") + "\n")
    return 0
