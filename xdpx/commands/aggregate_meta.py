"""Print one table of the metadata of all preprocessed data below some folders: sizes, classes, tokens, longest sample.

Usage: x-script aggregate_meta ROOT... [-WORD...] [--full]

  ROOT     a folder with data_dirs in it, at any depth; may be repeated
  -WORD    only those whose path contains WORD
  --full   also the preprocessing parameters in which they differ

On a terminal the columns are aligned; otherwise they are separated by tabs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from xdpx.commands.script_arguments import need_paths, read_arguments
from xdpx.utils import io

NAME = "aggregate_meta"
USAGE = "x-script aggregate_meta ROOT... [-WORD...] [--full]"
TOLD = ("processor", "num_classes", "vocab_size", "max_len", "embedding_dim")
PLACES = frozenset({"data_dir", "data_source", "log_file"})


def main(argv: Sequence[str]) -> int:
    """Print the table. Exit code 1 if no data is found."""
    from xdpx.reports.tables import as_text, as_tsv, union_of_keys

    arguments = read_arguments(NAME, argv, flags=["--full"], keywords=True)
    need_paths(NAME, arguments, USAGE)
    rows = [row_of(folder) for folder in find(arguments.paths, arguments.keywords)]
    if not rows:
        print(f"no preprocessed data below {', '.join(arguments.paths)}", file=sys.stderr)
        return 1
    if "--full" in arguments.flags:
        rows = _with_settings(rows)
    write = as_text if sys.stdout.isatty() else as_tsv
    sys.stdout.write(write(rows, union_of_keys(rows, first=["data_dir", *TOLD])))
    return 0


def find(roots: Sequence[str], keywords: Sequence[str]) -> list[str]:
    """Return the folders that hold meta.hjson and have every keyword in their path, sorted."""
    found = set()
    for root in roots:
        if not io.isdir(root):
            raise FileNotFoundError(f"{root}: no such folder; give the folder that holds the data.")
        paths = io.listdir(root, recursive=True, full_path=True)
        found |= {io.parent(path) for path in paths if io.name(path) == "meta.hjson"}
    return sorted(folder for folder in found if all(word in folder for word in keywords))


def row_of(folder: str) -> dict[str, Any]:
    """Return the row of a data_dir: the size of each split, and the values of `TOLD`, from its metadata."""
    from xdpx.datasets.meta import read_meta

    meta = read_meta(folder)
    sizes = {f"size_{split}": size for split, size in sorted(meta.get("data_size", {}).items())}
    return {"data_dir": folder, **{key: meta[key] for key in TOLD if key in meta}, **sizes}


def _with_settings(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    from xdpx.config.args_file import ARGS_FILE
    from xdpx.config.stored_args import read_args
    from xdpx.reports.aggregation import differing_settings

    paths = [io.join(row["data_dir"], ARGS_FILE) for row in rows]
    settings = [read_args(path) if io.isfile(path) else {} for path in paths]
    differing = [key for key in differing_settings(settings) if key not in PLACES]
    return [{**row, **{key: each.get(key) for key in differing}} for row, each in zip(rows, settings, strict=True)]
