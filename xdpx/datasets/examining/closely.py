"""Select the checks that apply to given data, and run them for x-prepro on the beginning of each file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from xdpx.config.loading import Run
from xdpx.datasets.examining.columns import (
    columns,
    labelled_columns,
    odd_numbers,
    query_names,
    shared_queries,
    tag_forms,
    tag_order,
)
from xdpx.datasets.examining.near import near
from xdpx.datasets.examining.sample import Sample, read_sample
from xdpx.datasets.examining.splits import splits
from xdpx.datasets.examining.writing import writing
from xdpx.datasets.findings.finding import Finding
from xdpx.datasets.raw_data import RawFile
from xdpx.loaders.base import Loader

Look = tuple[str, Callable[[], Iterable[Finding]]]

BEGINNING = 2
"""Number of blocks of each file, of about a million characters, that x-prepro checks."""
ENOUGH_ROWS, FEWEST_ROWS = 20_000, 200


def has_classes(run: Run, loader: Loader, sample: Sample) -> bool:
    """Return whether each row has exactly one label that is a class."""
    alone = not loader.several_labels and not loader.before and loader.merger(1) is None
    return alone and run.values.get("target_type") != "number" and any(sample.labelled)


def looks(sample: Sample, files: Mapping[str, RawFile], run: Run, loader: Loader) -> Iterator[Look]:
    """Yield (name, check) of the checks without a model that apply to these rows.

    Args:
        sample: the rows.
        files: their raw files, by split.
        run: of x-prepro.
        loader: of the run.
    """
    yield "writing", lambda: writing(sample)
    if loader.merger(1) is not None:
        return
    classes = has_classes(run, loader, sample)
    header = next((file.parser.header(file.path) for file in files.values()), None)
    yield "columns", lambda: columns(sample, header=header)
    yield "splits", lambda: splits(sample, classes=classes)
    if sample.queries:
        yield "queries", lambda: query_names(sample)
        yield "shared queries", lambda: shared_queries(sample)
    yield "near", lambda: near(sample, classes=classes)
    if classes:
        yield "labels", lambda: labelled_columns(sample)
    elif run.values.get("target_type") == "number" and any(sample.labelled):
        yield "numbers", lambda: odd_numbers(sample)
    elif loader.marks_words and loader.several_labels:
        yield "tags", lambda: tag_order(sample)
        yield "tag forms", lambda: tag_forms(sample)


def at_the_beginning(files: Mapping[str, RawFile], run: Run, loader: Loader) -> Iterator[Finding]:
    """Check the first rows of each raw file, and yield the findings above notes, as warnings.

    Args:
        files: by split.
        run: of x-prepro.
        loader: of the run.
    """
    sample = read_sample(files, loader, most=ENOUGH_ROWS, first_blocks=BEGINNING)
    if len(sample) < FEWEST_ROWS:  # shares of so few rows mean nothing
        return
    for _, look in looks(sample, files, run, loader):
        for found in look():
            if found.severity != "note":
                yield replace(found, severity="warning", examples=found.examples[:1])
