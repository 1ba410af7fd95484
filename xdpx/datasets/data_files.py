"""Find the raw files of x-prepro, and the split that each becomes."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping

from xdpx.config.faults import ConfigError, Fault, did_you_mean
from xdpx.loaders.tables import address_of, open_tables
from xdpx.utils import io
from xdpx.utils.raw_places import is_saved_dataset, is_table

DataFiles = dict[str, str] | list[str] | str

COMPRESSED = (".gz", ".bz2", ".xz")
RAW_ENDINGS = (".tsv", ".csv", ".txt", ".json", ".jsonl", ".parquet", ".xlsx", *COMPRESSED)
"""Suffixes of raw files. Spark also uses them for folders of parts."""
NOT_PLAIN_TEXT = (".parquet", ".xlsx", ".xls", ".zip", *COMPRESSED)
"""Suffixes that promise a reader something else than plain text, so that no table is written under them."""
LIST_OF_SPLITS = "dataset_dict.json"
"""File that `datasets` writes beside the folders of splits; not a split itself."""
RESERVED = frozenset({"embeddings", "resources"})
"""Names that other files of data_dir use."""


def splits(data_source: str, data_files: DataFiles) -> dict[str, str]:
    """Return the raw file of each split.

    Args:
        data_source: their folder.
        data_files: a name or pattern, a list of them, or {name: split}.

    Returns:
        {split: path}, in the order of the paths.

    Raises:
        ConfigError: a name or pattern matches nothing or a folder, or the name of a split is invalid or used twice.
    """
    faults: list[Fault] = []
    pairs: list[tuple[str, str]] = []
    for name, split in _named(data_files):
        paths = _matching(data_source, name)
        if not paths and split is not None and _matching(data_source, split):
            remedy = f"The name of the file comes first: {{{split}: {name}}}."
            faults.append(Fault("data_files", f"maps the split '{name}' to the file '{split}'.", remedy))
        elif not paths:
            faults.append(_nothing(data_source, name))
        elif split is not None and len(paths) > 1:
            remedy = "Name one file, or join them: cat FILE FILE > FILE."
            faults.append(Fault("data_files", f"'{name}' matches {len(paths)} files, but names one split.", remedy))
            continue
        pairs += [(path, split_of(path) if split is None else split.removesuffix(".pt")) for path in paths]
    found: dict[str, str] = {}
    for path, split in sorted(set(pairs)):
        faults += _wrong_split(split, path, found, data_source)
        found[split] = path
    if faults:
        raise ConfigError(data_source, dict.fromkeys(faults))  # a missing folder gives the same fault for every name
    return found


def split_of(path: str) -> str:
    """Return the split of a raw file: its name without suffix and compression; of a table, the table's name."""
    if is_table(path):
        return address_of(path).table.partition("/")[0]
    name = io.name(path)
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    stem, dot, _ = name.rpartition(".")
    return stem if dot and stem else name


def _named(data_files: DataFiles) -> Iterable[tuple[str, str | None]]:
    if isinstance(data_files, Mapping):
        return list(data_files.items())
    return [(name, None) for name in ([data_files] if isinstance(data_files, str) else data_files)]


def _matching(data_source: str, name: str) -> list[str]:
    if is_table(data_source):
        return _matching_tables(data_source.rstrip("/"), name)
    path = io.join(data_source, name)
    if io.isfile(path) or is_saved_dataset(path):
        return [path]
    pattern = io.name(path)
    folder = io.parent(path)
    if not any(mark in pattern for mark in "*?["):
        return []
    try:  # not io.isdir: some web servers list a folder without identifying it as one
        there = io.listdir(folder or ".")
    except OSError:
        return []
    broken = io.local_files.broken_links(io.plain(folder)) if io.islocal(folder) else []
    broken = [each for each in broken if fnmatch.fnmatchcase(each, pattern) and not each.startswith(".")]
    if broken:  # as with a folder
        problem = f"'{broken[0]}' is a link to a file that does not exist."
        raise ConfigError(data_source, [Fault("data_files", problem, "Restore the file, or name the files to read.")])
    names = [entry for entry in there if fnmatch.fnmatchcase(io.name(entry), pattern)]
    names = [entry for entry in names if io.name(entry) != LIST_OF_SPLITS]
    paths = [io.join(folder, io.name(entry)) for entry in names if not io.name(entry).startswith(".")]
    raw = sorted(found for found in paths if io.isfile(found) or is_saved_dataset(found))
    folders = sorted(io.name(found) for found in set(paths).difference(raw) if found.lower().endswith(RAW_ENDINGS))
    if folders:  # silently ignoring it might leave out all training data
        raise ConfigError(data_source, [_folder(name.removesuffix(pattern) + each) for each in folders])
    return raw


def _matching_tables(source: str, name: str) -> list[str]:
    """Return the tables of a database that match a name or pattern; in a name, a partition may follow a slash."""
    if any(mark in name for mark in "*?["):
        there = open_tables(address_of(io.join(source, "any")).source).names()
        return [io.join(source, table) for table in there if fnmatch.fnmatchcase(table, name)]
    place = address_of(io.join(source, name))
    open_tables(place.source).columns(place.table)
    return [io.join(source, name)]


def _nothing(data_source: str, name: str) -> Fault:
    if is_table(data_source):
        return Fault("data_files", f"'{name}' matches no table of {data_source}.", "Name one.", code="missing_path")
    if io.isdir(io.join(data_source, name)):
        return _folder(name)
    try:
        there = [io.name(entry) for entry in io.listdir(data_source)]
    except OSError:
        return Fault("data_files", f"there is no folder {data_source}.", "Correct data_source.", code="missing_path")
    listed = ", ".join(sorted(there)[:6]) or "nothing"
    remedy = did_you_mean(name, there, f"There is: {listed}{', ...' if len(there) > 6 else ''}.")
    return Fault("data_files", f"'{name}' matches no file in {data_source}.", remedy, code="missing_path")


def _folder(name: str) -> Fault:
    remedy = f"Name the files in it: data_files: {{{name}/FILE: {split_of(name)}}}; or join them into one."
    return Fault("data_files", f"'{name}' is a folder, not a file.", remedy)


def _wrong_split(split: str, path: str, found: Mapping[str, str], data_source: str) -> list[Fault]:
    if split in found:
        problem = f"'{found[split]}' and '{path}' would both become the split '{split}'."
        name = path.removeprefix(data_source.rstrip("/") + "/")
        return [Fault("data_files", problem, f"Name the splits: data_files: {{{name}: ...}}.")]
    if not split or "/" in split or split in RESERVED:
        return [Fault("data_files", f"'{split}' cannot be the name of a split.", "Name the splits: {file: split}.")]
    return []
