"""Running text for language models: one sentence per line, a blank line between documents."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from xdpx.config.parameters import param
from xdpx.loaders.base import Blocks, Loader, Merger

BreakMode = Literal["none", "none_doc", "complete", "complete_doc", "eos"]

NUM_SPECIAL = 3
"""Tokens of `max_len` that are kept free for special ones, whatever the processor adds."""


class CorpusLoader(Loader):
    """Lines are sentences, blank lines separate documents; they are joined into blocks of max_len - 3 tokens."""

    num_targets: ClassVar[int] = 0

    class Parameters(Loader.Parameters):
        """What the corpus loader can be told."""

        parser: str = param("none", doc="How files are cut into columns.", registry="parser")
        break_mode: BreakMode = param(
            "complete",
            doc="Where blocks end: none (anywhere), complete (whole sentences), both also with _doc (never across "
            "documents), or eos (a sentence is a block).",
        )

    def merger(self, max_len: int) -> Merger:
        """Join sentences into blocks."""
        return SentenceMerger(self.parameters.break_mode, max(max_len - NUM_SPECIAL, 1))


class SentenceMerger(Merger):
    """Joins sentences into blocks of at most `size` tokens. A longer sentence is cut into blocks of `size`."""

    def __init__(self, break_mode: BreakMode, size: int) -> None:
        self._size = size
        self._whole = break_mode.startswith("complete")
        self._within_document = break_mode.endswith("_doc")
        self._single = break_mode == "eos"
        self._rest = np.zeros(0, np.int32)
        # Where the last whole sentence in `_rest` ends; behind it stands nothing, because `feed` takes whole sentences.

    def feed(self, texts: Blocks, borders: NDArray[np.bool_]) -> Blocks:
        """Join the unfinished block and some more sentences; keep back what is not complete."""
        values = np.concatenate([self._rest, texts.values])
        ends = (texts.offsets[1:] + len(self._rest)).tolist()
        cuts = self._cuts(len(self._rest), ends, borders.tolist())
        self._rest = values[cuts[-1] :]
        return Blocks(values[: cuts[-1]], np.array(cuts, np.int64))

    def finish(self) -> Blocks:
        """Give the unfinished block."""
        rest, self._rest = self._rest, self._rest[:0]
        return Blocks(rest, np.array([0, len(rest)] if len(rest) else [0], np.int64))

    def _cuts(self, last: int, ends: list[int], borders: list[bool]) -> list[int]:
        """Find where blocks end. `last` is where the sentence before the first one ends."""
        cuts = [0]
        start = 0
        for end, border in zip(ends, borders, strict=True):
            if end - start > self._size:
                if self._whole and last > start:
                    cuts.append(last)
                    start = last
                while end - start > self._size:
                    start += self._size
                    cuts.append(start)
            if end > start and (self._single or (border and self._within_document)):
                cuts.append(end)
                start = end
            last = end
        return cuts
