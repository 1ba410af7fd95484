"""Stream raw files into samples: read blocks, process them in worker processes, and join the results in file order.

The main process reads; workers parse, tokenize and make samples. The result does not depend on the number of workers,
and a file of any size needs the memory of a few blocks.
"""

from __future__ import annotations

import codecs
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import ConfigError, Fault
from xdpx.datasets.data_files import COMPRESSED
from xdpx.datasets.duplicates import SeenRecords
from xdpx.datasets.findings.raw_files import LOOKED_AT, head_of, how_to_cut, names_no_columns
from xdpx.datasets.guessing.encodings import SAMPLE_BYTES, decodes, likely, no_text
from xdpx.datasets.sample_making import SHOWN_BAD_LINES, Counts, Made, Maker, Recipe, Work, measure, numerize
from xdpx.datasets.workers import Crew
from xdpx.loaders.base import Blocks, Loader, Merger
from xdpx.loaders.parsers.base import NUL, BadLine, Block, Parser, Row, wrong_width
from xdpx.loaders.parsers.csv import CSVParser
from xdpx.loaders.parsers.encodings import UTF8, TextParameters, unmarked_utf16
from xdpx.loaders.parsers.files import open_raw
from xdpx.processors.base import Processor
from xdpx.processors.samples import Ragged, Samples
from xdpx.tokenizers.encoder import Encoded, Encoder
from xdpx.tokenizers.target_map import TargetMap
from xdpx.utils import io
from xdpx.utils.raw_places import SAVED, is_table

NOT_UTF8 = "is not UTF-8 text"
SCORING_REMEDY = "set ignore_novel_target: true to count it as the first class"


@dataclass(frozen=True)
class RawFile:
    """A raw file of which it is known whether its lines have labels.

    Attributes:
        path: of the file.
        parser: reads it.
        labelled: whether its lines have a label.
        identity: `identity(path)` from before the file was read, for `refuse_changes`.
    """

    path: str
    parser: Parser
    labelled: bool
    identity: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def survey(cls, path: str, parser: Parser, loader: Loader, *, skip_bad_lines: bool = False) -> RawFile:
        """Read the first rows of a file, most of which show whether its lines have a label.

        Raises:
            ConfigError: no line can be used; or, unless bad lines are skipped, a line up to there is bad or has a
                wrong number of columns.
        """
        blank, skipped = False, list[BadLine]()
        for rows in _first_rows(path, parser, skipped if skip_bad_lines else None):
            votes: list[bool] = []
            for line, row in rows[:LOOKED_AT]:
                labelled = None if row == [""] else loader.is_labelled(row)
                blank |= row == [""]
                if labelled is not None:
                    votes.append(labelled)
                elif row != [""] and not votes:
                    bad = BadLine(line, wrong_width(row, f"not {loader.expected()}"))
                    if not skip_bad_lines:
                        raise _unfit(path, parser, loader, bad)
                    skipped = skipped or [bad]
            if votes:  # the majority decides, as the first row may be a title; in a tie, the first row
                return cls(path, parser, Counter(votes).most_common(1)[0][0])
        if blank and loader.is_labelled([""]) is not None:
            return cls(path, parser, False)
        problem, remedy = "contains no usable line", f"A line has: {loader.expected()}."
        if is_table(path) or not io.size(path):
            problem = "is empty"
        elif skipped:  # all lines may share the problem of the first, such as another encoding
            first = bad_lines_error(path, parser, skipped).faults[0]
            problem = f"{problem}: {parser.place or parser.unit} {skipped[0].line}: {first.problem.rstrip('.')}"
            remedy = first.remedy if NOT_UTF8 in skipped[0].problem else remedy
        raise ConfigError(path, [Fault("data_files", f"{problem}.", remedy)])

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks of the file, in order."""
        return self.parser.blocks(self.path)

    @property
    def is_compressed(self) -> bool:
        """Whether the file is compressed, so that its size says little about the number of lines."""
        return self.path.lower().endswith(COMPRESSED)

    def refuse(self, bad: Sequence[BadLine]) -> ConfigError:
        """Return the error that names the bad lines."""
        return bad_lines_error(self.path, self.parser, bad)

    def refuse_changes(self) -> None:
        """Raise ConfigError if the file has changed since `identity` was taken: samples would be of two versions."""
        if not is_table(self.path) and identity(self.path) != self.identity:
            problem = "was changed while it was read: the result would mix two versions."
            raise ConfigError(
                self.path, [Fault("data_files", problem, "Run it again when the file is no longer being written.")]
            )


def identity(path: str) -> dict[str, Any]:
    """Return path, size and modification time of a raw file; for a table the time of this call, as it may change."""
    if is_table(path):
        return {"path": path, "read": time.time()}
    if io.isdir(path):
        return {"path": path, "size": io.size(path), "modified": io.last_modified(io.join(path, SAVED))}
    return {"path": path, "size": io.size(path), "modified": io.last_modified(path)}


def _unfit(path: str, parser: Parser, loader: Loader, bad: BadLine) -> ConfigError:
    """Return the error for a first row whose columns do not fit the loader, with a remedy found from the file."""
    error = bad_lines_error(path, parser, [bad])
    head = head_of(path, parser)
    if not isinstance(parser, CSVParser) or not head.rows:
        return error
    remedy = error.faults[0].remedy
    if len(head.rows[0]) < loader.num_sections:
        found = how_to_cut([parser.delimiter.join(row) for row in head.rows], loader, given=parser.delimiter)
        remedy = remedy if found is None else found[1]
    elif names_no_columns(parser):
        remedy = f"If the first line names columns, choose some by name: fields: [...]. Else: {remedy}"
    return ConfigError(path, [replace(error.faults[0], remedy=remedy)])


def _first_rows(path: str, parser: Parser, skipped: list[BadLine] | None) -> Iterator[list[tuple[int, Row]]]:
    """Yield (line, row) of the rows of each block of a file.

    The first bad line is added to `skipped`; if that is None, it is an error.
    """
    for block in parser.blocks(path):
        rows = parser.parse(block)
        if rows.bad and skipped is None:
            raise bad_lines_error(path, parser, rows.bad)
        if skipped is not None and not skipped:
            skipped += rows.bad[:1]
        yield list(zip(rows.lines, rows.rows, strict=True))


def bad_lines_error(path: str, parser: Parser, bad: Sequence[BadLine]) -> ConfigError:
    """Return the error that lists the first few bad lines of a file, with a remedy."""
    mark = "" if parser.unit == "line" else f"{parser.place or parser.unit} "
    faults = [Fault(f"{path}:{mark}{line}", f"{problem}.") for line, problem in bad[:SHOWN_BAD_LINES]]
    told = " ".join(problem for _, problem in bad[:SHOWN_BAD_LINES])
    remedy = parser.remedy(told)
    if isinstance(parser.parameters, TextParameters):
        with open_raw(path) as stream:
            start = stream.read(SAMPLE_BYTES)
        if (known := no_text(start)) is not None:
            return ConfigError(path, [Fault("data_files", f"'{io.name(path)}' is {known[0]}, not text.", known[1])])
    if (NOT_UTF8 in told or NUL in told) and isinstance(parser.parameters, TextParameters):
        faults = [replace(each, problem=_in_encoding(each.problem, parser.parameters.encoding)) for each in faults]
        remedy = f"{_other_encoding(start, parser.parameters.encoding)}{remedy}"
    faults[-1] = replace(faults[-1], remedy=remedy)
    return ConfigError(path, faults)


def _in_encoding(problem: str, encoding: str) -> str:
    """Return the problem with the configured encoding in place of UTF-8, and no byte offset: that is of the UTF-8."""
    if codecs.lookup(encoding).name == UTF8:
        return problem
    return re.sub(r"(byte 0x\w\w) at \d+", r"\1", problem.replace(NOT_UTF8, f"is not {encoding} text"))


def _other_encoding(data: bytes, said: str) -> str:
    """Return a remedy that names the likely encoding of a file, detected from its start; '' if it is the one said.

    It is also '' if none is likely. JSON may hold a NUL as an escape, in any encoding.
    """
    whole = data[: data.rfind(b"\n") + 1] or data
    found = unmarked_utf16(data) or (UTF8 if decodes(whole, UTF8) else likely(whole))
    if found and (codecs.lookup(found).name == codecs.lookup(said).name or (found == UTF8 and b"\0" in data)):
        return ""
    key = f"set encoding: {found} (in x-eval and x-pred in extra_config)"
    return f"The file is likely {found}: {key}. Else: " if found else ""


class Joiner:
    """Does the work that needs file order: dropping duplicates and joining sentences. Sums up `counts`."""

    def __init__(self, recipe: Recipe, *, remove_duplicate: bool) -> None:
        self._recipe = recipe
        self._seen = SeenRecords() if remove_duplicate else None
        self._merger: Merger | None = recipe.loader.merger(recipe.processor.parameters.max_len)
        self.counts = Counts()

    def join(self, made: Made) -> tuple[Samples, NDArray[np.int64]]:
        """Add the result of the next block. Returns (samples to keep, index of the row that each came from)."""
        self.counts.add(made.counts)
        if self._merger is not None:
            return self._merge(made, self._merger), made.kept
        assert made.samples is not None  # noqa: S101 - for the type checker: None only if the loader merges
        if self._seen is None or made.hashes is None:
            return made.samples, made.kept
        keep = np.flatnonzero(self._seen.add(made.hashes))
        self.counts.duplicates += len(made.kept) - len(keep)
        self.counts.samples -= len(made.kept) - len(keep)
        return made.samples.take(keep), made.kept[keep]

    def finish(self) -> Samples | None:
        """Return the remaining samples of a loader that merges; None for other loaders."""
        return None if self._merger is None else self._numerize(self._merger.finish())

    def _merge(self, made: Made, merger: Merger) -> Samples:
        assert made.encoded is not None and made.borders is not None  # noqa: S101, PT018 - for the type checker
        encoded, borders = made.encoded, made.borders
        if self._seen is not None and made.hashes is not None:
            keep = np.flatnonzero(self._seen.add(made.hashes) | borders)
            self.counts.duplicates += len(borders) - len(keep)
            rows = Ragged(*encoded).take(keep)
            encoded, borders = Encoded(rows.values, rows.offsets.astype(np.int64)), borders[keep]
        wanted = merger.wanted(Blocks(*encoded), self._recipe.processor.num_special)
        self.counts.longest = max(self.counts.longest, int(wanted.max(where=~borders, initial=0)))
        self.counts.too_long += int(np.count_nonzero(wanted[~borders] > self._recipe.processor.parameters.max_len))
        return self._numerize(merger.feed(Blocks(*encoded), borders))

    def _numerize(self, blocks: Blocks) -> Samples:
        name = self._recipe.loader.text_fields[0]
        texts = {name: Encoded(*blocks)}
        samples, kept = numerize(self._recipe.processor, texts, None)
        measure(self.counts, self._recipe.processor, texts)
        self.counts.samples += len(kept)
        self.counts.too_short += len(blocks.offsets) - 1 - len(kept)
        return samples


class RawChunk(NamedTuple):
    """Some consecutive rows of a raw file.

    Attributes:
        rows: the unprocessed columns of each. Empty for a loader that joins lines.
        header: names of the columns, if the file or the config has them.
        samples: made of the rows; their ids are positions among the samples of the file.
        kept: index of each sample among `rows`, ascending. Empty for a loader that joins lines.
        labelled: whether the last column is a label.
        lines: 1-based line where each row begins. Empty for a loader that joins lines.
    """

    rows: list[Row]
    header: Row | None
    samples: Samples
    kept: NDArray[np.int64]
    labelled: bool
    lines: Sequence[int] = ()


def stream(  # noqa: PLR0913 - one argument per stage of the pipeline, all passed by keyword
    path: str,
    *,
    parser: Parser,
    loader: Loader,
    encoder: Encoder,
    processor: Processor,
    target_map: TargetMap | None = None,
    target_unk: str | None = None,
    numbers: bool = False,
    rows_per_chunk: int = 4096,
    workers: int = 1,
    skip_bad_lines: bool = False,
    counts: Counts | None = None,
    words: Encoder | None = None,
) -> Iterator[RawChunk]:
    """Yield the samples of a raw file in chunks of a few thousand rows, in the memory of a few chunks.

    Args:
        path: the raw file.
        parser: reads the file.
        loader: makes records of its rows.
        encoder: converts texts to token ids.
        processor: makes samples of them.
        target_map: classes of the labels; None leaves labels out of the samples.
        target_unk: label to use for labels that the map lacks; None makes their lines bad.
        numbers: whether labels can only be numbers.
        rows_per_chunk: maximum number of rows per chunk.
        workers: number of processes that parse and encode; does not change the result.
        skip_bad_lines: skip lines that cannot be used; otherwise they are an error.
        counts: updated with the counts of the file.
        words: converts the words of texts to ids, for a loader that has words.

    Raises:
        ConfigError: the first bad lines, unless they are skipped.
    """
    recipe = Recipe(
        parser, loader, encoder, processor, target_map, target_unk, label_remedy=SCORING_REMEDY, numbers=numbers,
        words=words,
    )  # fmt: skip
    file = RawFile.survey(path, parser, loader, skip_bad_lines=skip_bad_lines)
    joiner = Joiner(recipe, remove_duplicate=False)
    joiner.counts = counts if counts is not None else joiner.counts
    header = parser.header(path)
    first_id = 0
    with Crew(Maker(recipe), workers=workers) as crew:
        for made in made_of(file, crew, skip_bad_lines=skip_bad_lines, keep_rows=True):
            samples, kept = joiner.join(made)
            whole = RawChunk(made.rows, header, samples, kept, file.labelled, made.lines)
            for chunk in _chunks(whole, rows_per_chunk, first_id):
                yield chunk
                first_id += len(chunk.samples)
        last = joiner.finish()
        if last is not None and len(last):
            yield RawChunk([], header, _numbered(last, first_id), np.arange(0), file.labelled)


def made_of(
    file: RawFile,
    crew: Crew[Work, Made],
    *,
    skip_bad_lines: bool,
    hashed: bool = False,
    keep_rows: bool = False,
    keyed: bool = False,
) -> Iterator[Made]:
    """Yield the crew's result for each block of a file, in order.

    Raises:
        ConfigError: the first bad lines, unless they are skipped.
    """
    works: Iterable[Work] = (Work(block, file.labelled, hashed, keep_rows, keyed) for block in file.blocks())
    for made in crew.map(works):
        if made.counts.bad and not skip_bad_lines:
            raise file.refuse(made.counts.bad)
        yield made


def _chunks(whole: RawChunk, size: int, first_id: int) -> Iterator[RawChunk]:
    if len(whole.rows) <= size:
        yield whole._replace(samples=_numbered(whole.samples, first_id))
        return
    for start in range(0, len(whole.rows), size):
        first, last = np.searchsorted(whole.kept, [start, start + size]).tolist()
        samples = _numbered(whole.samples.take(np.arange(first, last)), first_id + first)
        rows, lines = whole.rows[start : start + size], whole.lines[start : start + size]
        yield whole._replace(rows=rows, samples=samples, kept=whole.kept[first:last] - start, lines=lines)


def _numbered(samples: Samples, first_id: int) -> Samples:
    return Samples(samples.columns, first_id=first_id)
