"""Count tokens and labels in raw files, for building a vocabulary and a target map."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from xdpx.datasets.raw_data import RawFile
from xdpx.datasets.sample_making import same_every_time
from xdpx.datasets.workers import Crew
from xdpx.loaders.base import Loader
from xdpx.loaders.parsers.base import BadLine, Block, Parser
from xdpx.logger import ProgressBar, log
from xdpx.tokenizers.base import Tokenizer


@dataclass
class RawCounts:
    """Counts of tokens and labels.

    Attributes:
        tokens: count of each token; empty if tokens were not counted.
        labels: count of each label, sorted, so that the order of files does not matter; empty if no file is labelled.
        lines: number of usable lines of each file, by path.
    """

    tokens: Counter[str] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)
    lines: Counter[str] = field(default_factory=Counter)


class _Work(NamedTuple):
    block: Block
    labelled: bool
    words: bool


class _Counted(NamedTuple):
    tokens: Counter[str]
    labels: Counter[str]
    lines: int
    bad: list[BadLine]


class _Count:
    """The task of a worker: counts the tokens and labels of one block."""

    def __init__(self, parser: Parser, loader: Loader, tokenizer: Tokenizer | None) -> None:
        self._parser = parser
        self._loader = loader
        self._tokenizer = tokenizer

    def __call__(self, work: _Work) -> _Counted:
        parts = [part for part in (self._parser, self._loader, self._tokenizer) if part is not None]
        with same_every_time(work.block, *parts):
            return self._counted(work)

    def _counted(self, work: _Work) -> _Counted:
        records = self._loader.records(self._parser.parse(work.block), labelled=work.labelled)
        tokens: Counter[str] = Counter()
        if self._tokenizer is not None and work.words:
            for texts in records.fields.values():
                tokens.update(self._tokenizer.count(texts))
        labels = Counter(label for target in records.targets or () for label in self._loader.labels_of(target))
        return _Counted(tokens, labels, len(records.lines), records.bad)


def count(
    files: Iterable[RawFile],
    loader: Loader,
    tokenizer: Tokenizer | None,
    *,
    workers: int,
    skip_bad_lines: bool,
    of_words: Collection[str] | None = None,
) -> RawCounts:
    """Return the counts of tokens and labels in raw files, which are read once.

    Args:
        files: all of the same format.
        loader: converts their rows to records.
        tokenizer: splits texts into tokens; None to count only labels.
        workers: number of processes.
        skip_bad_lines: skip lines that cannot be used; otherwise they are an error.
        of_words: paths of the files whose tokens are counted; None for all.

    Raises:
        ConfigError: a file has bad lines, unless they are skipped.
    """
    seen, files = RawCounts(), list(files)
    worded = {file.path for file in files if tokenizer is not None and (of_words is None or file.path in of_words)}
    files = [file for file in files if file.path in worded or file.labelled]
    with Crew(_Count(files[0].parser, loader, tokenizer), workers=workers) as crew:
        for file in files:
            for counted in _counted(file, crew, words=file.path in worded):
                if counted.bad and not skip_bad_lines:
                    raise file.refuse(counted.bad)
                seen.tokens.update(counted.tokens)
                seen.labels.update(counted.labels)
                seen.lines[file.path] += counted.lines
    seen.labels = Counter({label: seen.labels[label] for label in sorted(seen.labels)})
    return seen


def _counted(file: RawFile, crew: Crew[_Work, _Counted], *, words: bool) -> Iterator[_Counted]:
    what = "words" if words else "labels"
    progress: ProgressBar[Any] = log.progress(what=f"counting {what} of {file.path}", unit="rows")
    with progress:
        for counted in crew.map(_Work(block, file.labelled, words) for block in file.blocks()):
            yield counted
            progress.update(counted.lines)
    log.info(f"Counted the {what} of {progress.done:,} {file.parser.unit}s of {file.path}")
