"""The complete examination of the raw data of an x-prepro run, for x-check; writes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from xdpx.config.faults import ConfigError
from xdpx.config.loading import Run
from xdpx.datasets.block_work import BlockWork
from xdpx.datasets.build_parameters import BuildParameters
from xdpx.datasets.building import Builder
from xdpx.datasets.examining.closely import has_classes, looks
from xdpx.datasets.examining.noise import Crossed, crossed, label_noise, weak_slices
from xdpx.datasets.examining.part import PartWork
from xdpx.datasets.examining.sample import MANY, Sample, read_sample
from xdpx.datasets.findings.finding import Example, Finding, Findings, Severity
from xdpx.datasets.findings.same_texts import keys_of
from xdpx.datasets.findings.tokens import Tally
from xdpx.datasets.raw_data import RawFile
from xdpx.datasets.sample_making import Counts
from xdpx.datasets.workers import available_cores
from xdpx.loaders.base import Records
from xdpx.logger import log

MOST_ROWS = 200_000
NOISE_ROWS = 20_000
NOWHERE = ".x-check"
"""Suffix of a data_dir that does not exist, so that existing results are not considered."""


@dataclass
class Examination:
    """The result of an examination.

    Attributes:
        run: of x-prepro.
        findings: possible problems.
        sample: the rows that were examined; None if none could be read.
        labels: count of each label in the sample, the most frequent first.
        tallies: statistics of the texts of each split, if they could be computed, from a share `part` of them.
        part: share of the texts that `tallies` are computed from.
        crossed: cross-validated predictions of labels.
        seconds: duration of each step.
    """

    run: Run
    findings: Findings
    sample: Sample | None = None
    labels: dict[str, int] = field(default_factory=dict)
    tallies: dict[str, Tally] = field(default_factory=dict)
    part: float = 1.0
    crossed: Crossed | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def timed(self, name: str, work: Callable[[], object]) -> None:
        """Run one step, and record its duration."""
        start = time.monotonic()
        work()
        self.seconds[name] = time.monotonic() - start


def examine(run: Run, *, rows: int = MOST_ROWS, noise_rows: int = NOISE_ROWS) -> Examination:
    """Return an examination of the raw data of an x-prepro run.

    Args:
        run: of x-prepro.
        rows: maximum size of the sample for close checks; equal texts are searched among all rows.
        noise_rows: maximum number of rows to search for wrong labels; 0 for none.
    """
    parameters: BuildParameters = run.parameters("command")
    found = Examination(run, Findings(parameters.data_source, parameters.ignore_findings, patient=True))
    lenient = {"skip_bad_lines": True, "data_dir": parameters.data_dir.rstrip("/") + NOWHERE}
    reading = replace(run, values={**run.values, **lenient})
    with log.early() as early:
        builder = Builder(reading, reading.parameters("command"), early, BlockWork(), found.findings)
        try:
            builder.look()
        except ConfigError as error:
            found.findings.add(_refusals(error))
            return found
        builder.work = part = PartWork(builder.files)
        found.part = part.share
        found.timed("tokens", lambda: _count(found, builder))
        found.timed("reading", lambda: _read(found, builder, rows))
    if found.sample is not None:
        _look_closely(found, found.sample, builder.files, noise_rows=noise_rows)
    return found


def _count(found: Examination, builder: Builder) -> None:
    """Count labels and tokens with the code of x-prepro; its errors become findings."""
    try:
        builder.prepare(with_vectors=False)
    except ConfigError as error:
        found.findings.add(_refusals(error))
        return
    try:
        for split, file in builder.files.items():
            counts = Counts()
            for made in builder.blocks_of(split, file):
                counts.add(made.counts)
            found.tallies[split] = tally = builder.tally(counts)
            builder.looking.at_split(split, tally)
    except ConfigError as error:
        found.findings.add(_refusals(error))
    finally:
        builder.end_work()


def _refusals(error: ConfigError) -> Iterator[Finding]:
    for fault in error.faults:
        place = fault.key if fault.key.startswith(error.source) else f"{error.source}: {fault.key}"
        yield Finding("refused", "fault", place, fault.problem, fault.remedy)


def _read(found: Examination, builder: Builder, rows: int) -> None:
    """Read all rows, compare equal texts, and keep a sample."""
    loader, looking = found.run.build("loader"), builder.looking

    def remember(split: str, records: Records) -> None:
        if looking.remembers_texts:
            looking.at_rows(split, keys_of(records))

    try:
        found.sample = sample = read_sample(builder.files, loader, most=rows, tell=remember)
    except ConfigError as error:
        found.findings.add(_refusals(error))
        return
    looking.compare(dropped=bool(found.run.values.get("remove_duplicate")))
    if loader.several_labels:
        every = [label for target in sample.labels for label in loader.labels_of(target)]
        names, times = np.unique(np.array(every or [""]), return_counts=True)
    else:
        listed, numbers = sample.classes
        names, times = np.array(listed), np.bincount(numbers[numbers >= 0], minlength=len(listed))
    order = np.argsort(-times, kind="stable")
    found.labels = {str(names[index]): int(times[index]) for index in order.tolist() if names[index]}
    found.findings.add(_bad_lines(sample, skipped=bool(found.run.values.get("skip_bad_lines"))))


def _bad_lines(sample: Sample, *, skipped: bool) -> Iterator[Finding]:
    for split, path in zip(sample.names, sample.paths, strict=True):
        count, rows = sample.num_bad[split], sample.rows_seen[split]
        if not count:
            continue
        share = count / (count + rows)
        examples = tuple(Example(f"{path}:{line}", problem) for line, problem in sample.bad[split])
        problem = f"{count:,} of {count + rows:,} lines ({share:.2%}) cannot be used"
        problem += ", and are skipped." if skipped else ": x-prepro stops at the first."
        remedy = "Fix the file." if skipped else "Fix the file, or set skip_bad_lines: true."
        severity: Severity = "fault" if not skipped else "warning" if share >= MANY else "note"
        yield Finding("bad_lines", severity, path, problem, remedy, share, examples)


def _look_closely(found: Examination, sample: Sample, files: dict[str, RawFile], *, noise_rows: int) -> None:
    """Run all checks that apply to the sample, in parallel threads; findings keep the order of the checks.

    Threads help because the checks spend most of their time in numpy, which releases the GIL.
    """
    loader = found.run.build("loader")
    work: dict[str, Callable[[], Iterable[Finding]]] = dict(looks(sample, files, found.run, loader))
    if noise_rows and has_classes(found.run, loader, sample):
        work["noise"] = partial(_doubt, found, sample, noise_rows)
    _ = sample.texts, sample.words  # nearly all need them
    with ThreadPoolExecutor(max_workers=min(len(work), available_cores()) or 1) as threads:
        waiting = {name: threads.submit(_timed, each) for name, each in work.items()}
        for name, each in waiting.items():
            findings, found.seconds[name] = each.result()
            found.findings.add(findings)


def _timed(work: Callable[[], Iterable[Finding]]) -> tuple[list[Finding], float]:
    start = time.monotonic()
    return list(work()), time.monotonic() - start


def _doubt(found: Examination, sample: Sample, most: int) -> list[Finding]:
    found.crossed = known = crossed(sample, most=most)
    return [] if known is None else [*label_noise(sample, known), *weak_slices(sample, known)]
