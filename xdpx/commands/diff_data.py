"""Print the lines in which two files differ, whatever their order; repeated lines count.

Usage: x-script diff_data LEFT RIGHT

Lines: `-- line` is more frequent in LEFT, `++ line` in RIGHT; `(3x)` is the difference in counts if it is not one. The
exit code is 1 if something differs.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from xdpx.commands.line_counts import counts_of, digest, lines_of
from xdpx.commands.script_arguments import need_paths, read_arguments

NAME = "diff_data"
USAGE = "x-script diff_data LEFT RIGHT"


def main(argv: Sequence[str]) -> int:
    """Print the differences, or that there are none."""
    arguments = read_arguments(NAME, argv)
    need_paths(NAME, arguments, USAGE, exactly=2)
    left, right = arguments.paths
    in_left, in_right = counts_of(NAME, left), counts_of(NAME, right)
    found = [*_shown("--", left, in_left - in_right), *_shown("++", right, in_right - in_left)]
    sys.stdout.writelines(f"{line}\n" for line in found or ["no line differs"])
    return 1 if found else 0


def _shown(mark: str, path: str, surplus: Counter[bytes]) -> Iterator[str]:
    """Yield the surplus lines of a file, each once, in the file's order."""
    for line in lines_of(NAME, path) if surplus else ():
        times = surplus.pop(digest(line), 0)
        if times:
            yield f"{mark} {line.decode('utf-8', 'replace')}" + (f"  ({times}x)" if times > 1 else "")
