"""Print one table with the best evaluation of every run below some folders.

Usage: x-script aggregate_results ROOT... [-WORD...] [--full]

  ROOT     a folder with runs in it, at any depth; may be repeated
  -WORD    only runs whose path contains WORD
  --full   also speed, and the parameters in which the runs differ; best run first

A run marked * was written to less than 60 seconds ago. On a terminal the columns are aligned; otherwise tab separated:
  x-script aggregate_results runs -lr --full > stats.tsv
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from xdpx.commands.script_arguments import need_paths, read_arguments

NAME = "aggregate_results"
USAGE = "x-script aggregate_results ROOT... [-WORD...] [--full]"


def main(argv: Sequence[str]) -> int:
    """Print the table. Exit code 1 if no run is found."""
    from xdpx.reports.aggregation import aggregate, find_runs
    from xdpx.reports.tables import as_text, as_tsv, union_of_keys

    arguments = read_arguments(NAME, argv, flags=["--full"], keywords=True)
    need_paths(NAME, arguments, USAGE)
    rows = aggregate(find_runs(arguments.paths, arguments.keywords), full="--full" in arguments.flags)
    if not rows:
        words = f" with {' and '.join(arguments.keywords)} in their path" if arguments.keywords else ""
        print(f"no evaluated runs{words} below {', '.join(arguments.paths)}", file=sys.stderr)
        return 1
    write = as_text if sys.stdout.isatty() else as_tsv
    sys.stdout.write(write(rows, union_of_keys(rows, first=["run", "best_score", "step"])))
    return 0
