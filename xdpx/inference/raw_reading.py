"""Decide how to read a raw file to score or predict: as training read its own, or by its file extension."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import Any

from xdpx.config.faults import ConfigError, Fault
from xdpx.config.loading import Run, resolve
from xdpx.datasets.data_files import COMPRESSED
from xdpx.datasets.findings import raw_files, tagged_files
from xdpx.datasets.findings.decoding import wrong_characters
from xdpx.datasets.findings.finding import Finding
from xdpx.datasets.findings.raw_files import Head, head_of
from xdpx.loaders.base import Loader
from xdpx.loaders.parsers.lines import LineParser
from xdpx.loaders.tagged import TaggedLoader
from xdpx.logger import log
from xdpx.tokenizers.target_map import folded
from xdpx.utils.raw_places import is_saved_dataset, is_table

HOW = frozenset({"parser", "delimiter", "quotechar", "fields", "start_line", "sheet_name"})
"""Keys that decide how a file is split into columns; if the user gives one of them, nothing is guessed."""

ENDINGS: Mapping[str, Mapping[str, Any]] = {
    ".tsv": {"parser": "csv", "delimiter": "\t"},
    ".csv": {"parser": "csv", "delimiter": ","},
    ".jsonl": {"parser": "jsonl"},
    ".ndjson": {"parser": "jsonl"},
    ".json": {"parser": "json"},
    ".parquet": {"parser": "parquet"},
    ".xlsx": {"parser": "excel"},
}
NAMED = frozenset({"jsonl", "json", "parquet"})
"""Parsers that select columns by name, for files that name their columns."""


def reading_of(path: str, prepro: Run, *, given: Set[str], labels: Sequence[str], key: str, source: str) -> Run:
    """Return the run of x-prepro to read a raw file with: that of the training data, or one with another parser.

    Args:
        path: the raw file.
        prepro: how training read its own files.
        given: keys of extra_config.
        labels: of the training data.
        key: the key that names the file, for messages.
        source: the config that holds it.

    Raises:
        ConfigError: neither way fits the file; the text says which keys to give.
    """
    if given & HOW or is_table(path) or is_saved_dataset(path):
        return prepro
    reading = _fitting(path, prepro, key, source)
    parser, loader = reading.build("parser"), reading.build("loader")
    head = head_of(path, parser)
    ignored = reading.values.get("ignore_findings") or []
    found = [each for each in _findings(path, head, parser, loader, labels) if each.code not in ignored]
    if found:
        way_out = (
            f'Keys are set in extra_config. If it is intended: extra_config: {{ignore_findings: ["{found[0].code}"]}}.'
        )
        faults = [Fault(key, f"{each.place}: {each.problem}", f"{each.remedy} {way_out}") for each in found]
        raise ConfigError(source, faults)
    for each in _doubts(path, head, parser, loader, labels):
        if each.code not in ignored:
            log.warning(f"{each} [{each.code}]", once=True)
    return reading


def _doubts(path: str, head: Head, parser: Any, loader: Loader, labels: Sequence[str]) -> Iterator[Finding]:
    """Yield findings about a file that is predicted all the same: letters, quotes and labels that training had not."""
    yield from raw_files.encoding(path, parser)
    yield from wrong_characters(path, head)
    if not any('"' in label for label in labels):
        yield from raw_files.quotes(path, head, parser)
    if loader.num_targets:
        labelled = bool(head.rows and loader.is_labelled(head.rows[0]))
        yield from raw_files.unknown_labels(path, head, loader, labelled=labelled, labels=labels)


def _fitting(path: str, prepro: Run, key: str, source: str) -> Run:
    said = _by_ending(path)
    values = prepro.values
    if not said or all(values.get(name) == value for name, value in said.items()) or _fits(path, prepro):
        return prepro
    other = dict(said) | {"fields": values.get("fields"), "quotechar": "auto", "sheet_name": None}
    if said["parser"] == "csv" or (said["parser"] in NAMED and values.get("fields")):
        changed = {name: value for name, value in other.items() if value is not None}
        run = resolve({**values, **changed}, "x-prepro", source=prepro.source, strict=False, paths=False)
        if _fits(path, run, alone=True):
            log.info(f"{path}: read according to its file extension, {_shown(said)}; training read {_shown(values)}")
            return run
    problem = f"'{path}' does not match what training read ({_shown(values)}), and nothing says what its columns are."
    unnamed = ", or fields: null where no line names them" if said["parser"] == "csv" else ""
    remedy = f"Say which: extra_config: {{{_config(said)}, fields: [...]}}{unnamed}."
    raise ConfigError(source, [Fault(key, problem, remedy)])


def _by_ending(path: str) -> Mapping[str, Any]:
    name = path.lower()
    for suffix in COMPRESSED:
        name = name.removesuffix(suffix)
    return next((said for ending, said in ENDINGS.items() if name.endswith(ending)), {})


def _fits(path: str, run: Run, *, alone: bool = False) -> bool:
    """Return whether a way of reading gives rows that the loader accepts.

    With `alone` a single column is enough; otherwise it may be an unsplit line, which any file gives, so it counts
    only if no line holds a delimiter or a quote.
    """
    parser, loader = run.build("parser"), run.build("loader")
    try:
        rows = head_of(path, parser).rows
    except ConfigError:
        return False
    widths = {len(row) for row in rows}
    fits = len(widths) == 1 and loader.is_labelled(rows[0]) is not None
    return fits and (alone or widths != {1} or _is_plain(path, run, rows))


def _is_plain(path: str, run: Run, rows: Sequence[Sequence[str]]) -> bool:
    """Return whether both ways give the same rows: one column without a delimiter or a quote."""
    said = _by_ending(path)
    signs = (said.get("delimiter", ""), '"') if said.get("parser") == run.values["parser"] else ("",)
    return not any(sign in row[0] for sign in signs for row in rows)


def _findings(path: str, head: Head, parser: Any, loader: Loader, labels: Sequence[str]) -> Iterator[Finding]:
    known = {folded(label) for label in labels}
    if isinstance(loader, TaggedLoader) and (found := [*tagged_files.plain_text(path, parser, tags=known)]):
        yield from found
        return
    if not head.rows or loader.merger(1) is not None:
        return
    labelled = bool(loader.is_labelled(head.rows[0]))
    first, *others = (loader.labels_of(row[-1]) if labelled else [] for row in head.rows)
    novel = bool(first) and known.isdisjoint(map(folded, first))
    yield from raw_files.header(path, head, parser, labelled=novel, labels=[*labels, *chain.from_iterable(others)])
    if not loader.num_targets:
        return
    if labelled and known and isinstance(parser, LineParser):
        yield from raw_files.first_row_left_out(path, parser, loader, known)
    if not labelled:
        yield from raw_files.another_reading(path, head, parser, loader, known)
    if labelled and isinstance(loader, TaggedLoader):
        yield from tagged_files.without_tags(path, head, parser, loader, tags=known)
    else:
        yield from raw_files.columns(path, head, loader, labelled=labelled, labels=known)


def _shown(values: Mapping[str, Any]) -> str:
    delimiter = f", delimiter {values['delimiter']!r}" if values["parser"] == "csv" and "delimiter" in values else ""
    return f"parser {values['parser']}{delimiter}"


def _config(said: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {json.dumps(value)}" for name, value in said.items())
