"""Compare two data_dirs: their metadata, and the count of each label in each split.

Usage: x-script diff_meta LEFT RIGHT

First the metadata that differ, as `-- key: value` only left, `++` only right, `+-` both, and the files whose content
does; then a table of the splits and labels. Counts are taken from the data themselves, and content is compared by the
SHA-256 that x-prepro recorded. The exit code is 1 if something differs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from xdpx.commands.script_arguments import need_paths, read_arguments
from xdpx.config.args_file import ARGS_FILE
from xdpx.config.faults import ConfigError, Fault
from xdpx.utils import io
from xdpx.utils.commit import read_manifest
from xdpx.utils.verified import RESOURCES

NAME = "diff_meta"
USAGE = "x-script diff_meta LEFT RIGHT"


def main(argv: Sequence[str]) -> int:
    """Print the differences, or that there are none."""
    from xdpx.config.args_file import differences
    from xdpx.reports.tables import as_text

    arguments = read_arguments(NAME, argv)
    need_paths(NAME, arguments, USAGE, exactly=2)
    left, right = arguments.paths
    lines = [*differences(_meta(left), _meta(right)), *_other_content(_digests(left), _digests(right))]
    rows = _compared(label_counts(left), label_counts(right))
    if not lines and all(row["left"] == row["right"] for row in rows):
        print("nothing differs")
        return 0
    sys.stdout.writelines(f"{line}\n" for line in lines)
    if rows:
        sys.stdout.write(as_text(rows, list(rows[0])))
    return 1


def _meta(folder: str) -> dict[str, Any]:
    from xdpx.datasets.meta import read_meta

    if not io.isfile(io.join(folder, "meta.hjson")):
        fault = Fault(folder, "contains no meta.hjson.", "Give a data_dir that x-prepro made.")
        raise ConfigError(f"x-script {NAME}", [fault])
    return dict(read_meta(folder))


def _digests(folder: str) -> dict[str, str]:
    """Return the SHA-256 of each split, and of what else samples depend on, by name of the file."""
    names = [*sorted(_meta(folder).get("data_size", {})), RESOURCES]
    found = [manifest.files for name in names if (manifest := read_manifest(folder, name)) is not None]
    return {name: facts.sha256 for files in found for name, facts in files.items() if name != ARGS_FILE}


def _other_content(left: Mapping[str, str], right: Mapping[str, str]) -> list[str]:
    return [f"+- {name}: other content" for name in left if name in right and left[name] != right[name]]


def label_counts(folder: str) -> dict[tuple[str, str], int]:
    """Count the labels of a data_dir: {(split, label): how often}."""
    import numpy as np

    from xdpx.datasets.store import SUFFIXES, Store
    from xdpx.processors.samples import Ragged
    from xdpx.tokenizers.target_map import TargetMap

    path = io.join(folder, "target_map.txt")
    labels = TargetMap.read(path).labels if io.isfile(path) else []
    found: dict[tuple[str, str], int] = {}
    for split in sorted(_meta(folder).get("data_size", {})):
        files = [io.join(folder, split + suffix) for suffix in SUFFIXES.values()]
        store = Store.open(next((file for file in files if io.isfile(file)), files[0]))
        if "target" in store and labels:
            column = store.columns["target"]
            counts = np.bincount(column.values if isinstance(column, Ragged) else column, minlength=len(labels))
            found |= {(split, label): int(count) for label, count in zip(labels, counts, strict=True)}
    return found


def _compared(left: Mapping[tuple[str, str], int], right: Mapping[tuple[str, str], int]) -> list[dict[str, Any]]:
    """Return a row for each split and label: both counts, and their shares of the split."""
    rows = []
    for split, label in dict.fromkeys([*left, *right]):
        row: dict[str, Any] = {"split": split, "label": label}
        for name, counts in (("left", left), ("right", right)):
            total = sum(count for (other, _), count in counts.items() if other == split)
            count = counts.get((split, label), 0)
            row |= {name: count, f"{name}_share": count / total if total else None}
        rows.append(row)
    return rows
