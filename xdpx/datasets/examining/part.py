"""The work of x-prepro on a part of the blocks of raw files, in which tokens are counted; labels are counted in all."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from xdpx.datasets.block_work import BlockWork
from xdpx.datasets.counting import RawCounts
from xdpx.datasets.raw_data import RawFile, made_of
from xdpx.datasets.sample_making import Made, Work
from xdpx.datasets.workers import Crew
from xdpx.loaders.base import Loader
from xdpx.loaders.parsers.base import Block
from xdpx.tokenizers.base import Tokenizer
from xdpx.utils import io
from xdpx.utils.raw_places import is_saved_dataset, is_table

BYTES_PER_BLOCK = 1 << 20
BLOCKS = 4
"""Number of blocks, of about a megabyte each, that take a slow tokenizer about three seconds."""
OF_COMPRESSED = 4
"""Approximate compression ratio of text."""


@dataclass(frozen=True)
class EvenPart(RawFile):
    """A raw file of which only every `step`-th block is read."""

    step: int = 1

    def blocks(self) -> Iterator[Block]:
        """Yield every `step`-th block."""
        return islice(super().blocks(), 0, None, self.step)


class PartWork(BlockWork):
    """Work on evenly spaced blocks of all files, a fraction `share` of them.

    Args:
        files: by split.
    """

    def __init__(self, files: Mapping[str, RawFile]) -> None:
        size = sum(map(_size, files.values()))
        self._step = max(1, math.ceil(size / (BLOCKS * BYTES_PER_BLOCK)))

    @property
    def share(self) -> float:
        """Share of the blocks, in (0, 1]."""
        return 1 / self._step

    def _part(self, file: RawFile) -> RawFile:
        return EvenPart(file.path, file.parser, file.labelled, file.identity, step=self._step)

    def count(
        self,
        files: Iterable[RawFile],
        loader: Loader,
        tokenizer: Tokenizer | None,
        *,
        workers: int,
        skip_bad_lines: bool,
        of_words: Collection[str] | None = None,
    ) -> RawCounts:
        """Return the counts of labels in raw files, and those of tokens in the part of them."""
        listed = list(files)
        seen = RawCounts()
        if any(file.labelled for file in listed):
            seen = super().count(listed, loader, None, workers=workers, skip_bad_lines=skip_bad_lines)
        if tokenizer is not None:
            part = [self._part(file) for file in listed]
            seen.tokens = (
                super()
                .count(part, loader, tokenizer, workers=workers, skip_bad_lines=skip_bad_lines, of_words=of_words)
                .tokens
            )
        return seen

    def made_of(
        self,
        split: str,
        file: RawFile,
        crew: Crew[Work, Made],
        *,
        digests: Mapping[str, str],
        skip_bad_lines: bool,
        hashed: bool,
        keyed: bool,
    ) -> Iterator[Made]:
        """Yield the samples made of each block of the part of a raw file, without hashes and keys."""
        del split, digests, hashed, keyed
        return made_of(self._part(file), crew, skip_bad_lines=skip_bad_lines)


def _size(file: RawFile) -> int:
    """Return the approximate size of the text of a file in bytes; 0 for tables and saved data sets."""
    if is_table(file.path) or is_saved_dataset(file.path):
        return 0
    return io.size(file.path) * (OF_COMPRESSED if file.is_compressed else 1)
