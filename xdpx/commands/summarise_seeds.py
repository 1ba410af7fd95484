"""Print statistics of runs that differ only in their seed: mean with 95 % interval, deviation, lowest, highest.

Usage: x-script summarise_seeds ROOT... [-WORD...] [--json]

  ROOT     a run, or a folder with runs in it, at any depth; may be repeated
  -WORD    only runs whose path contains WORD

Each run is represented by its best score on held-out data; runs of one seed count as one, by their mean. Groups of two
seeds or more are compared with the first such group: whether the interval of the difference of their means (Welch)
excludes 0.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from xdpx.commands.script_arguments import need_paths, read_arguments
from xdpx.logger import log

if TYPE_CHECKING:
    from xdpx.commands.seeds import SeedGroup

NAME = "summarise_seeds"
USAGE = "x-script summarise_seeds ROOT... [-WORD...] [--json]"
IN_JSON = "print_json=true"


def main(argv: Sequence[str]) -> int:
    """Print a row for each group. Exit code 1 if no run is found."""
    from xdpx.commands.seeds import differing, doubts, groups_of, other_rows, row_of
    from xdpx.reports.aggregation import find_runs
    from xdpx.reports.run_logs import read_run
    from xdpx.reports.tables import as_text, union_of_keys

    arguments = read_arguments(NAME, [word for word in argv if word != IN_JSON], keywords=True)
    need_paths(NAME, arguments, USAGE)
    folders = find_runs(arguments.paths, arguments.keywords)
    groups = groups_of([read_run(folder, train=False) for folder in folders])
    if not groups:
        print(f"no evaluated runs below {', '.join(arguments.paths)}", file=sys.stderr)
        return 1
    for line in (*(line for group in groups for line in doubts(group)), *other_rows(groups)):
        log.warning(line)
    keys = differing(groups)
    if IN_JSON in argv:
        print(json.dumps({"format": 1, "groups": [_told(group, keys) for group in groups]}, ensure_ascii=False))
        return 0
    rows = [row_of(group, keys) for group in groups]
    sys.stdout.write(as_text(rows, union_of_keys(rows)))
    sys.stdout.writelines(f"{line}\n" for line in compared(groups, keys))
    return 0


def _told(group: SeedGroup, keys: Sequence[str]) -> dict[str, object]:
    several = len(group.scores) > 1
    return {
        "settings": {key: group.settings.get(key) for key in keys}, "metric": group.metric, "mean": group.mean,
        "interval": [*group.interval] if several else None, "deviation": group.deviation if several else None,
        "runs": [{"folder": folder, "seed": seed, "score": score} for folder, seed, score in zip(
            group.folders, group.seeds, group.scores_of_runs.tolist(), strict=True)],
    }  # fmt: skip


def compared(groups: Sequence[SeedGroup], keys: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each group of several seeds after the first: whether it differs from the first."""
    from xdpx.commands.seeds import difference

    several = [group for group in groups if len(group.scores) > 1]
    for group in several[1:]:
        first = several[0]
        if group.metric != first.metric:
            continue
        found = difference(first, group)
        names = [" ".join(f"{key}={each.settings.get(key)}" for key in keys) for each in (group, first)]
        certain = not found["low"] <= 0 <= found["high"]
        verdict = "significant" if certain else "not significant"
        yield (
            f"{group.metric}: {names[0]} against {names[1]}: {found['difference']:+.4g}, "
            f"95 % interval {found['low']:+.4g} to {found['high']:+.4g}: {verdict}"
        )
