"""Running text whose words are known: one sentence per line, a space between words, a blank line between documents."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from xdpx.config.parameters import param
from xdpx.loaders import marks
from xdpx.loaders.base import Blocks, Merger
from xdpx.loaders.corpus import CorpusLoader


class CorpusMixLoader(CorpusLoader):
    """As `corpus`, of segmented text: words are cut into tokens one by one, so that they can be masked whole.

    For languages that write no spaces; a word of several characters is then guessed as one.

    Source: Cui et al., "Pre-Training with Whole Word Masking for Chinese BERT", arXiv 1906.08101, section 2.1.
    """

    marks_words: ClassVar[bool] = True

    class Parameters(CorpusLoader.Parameters):
        """What the corpus_mix loader can be told."""

        min_word_len: int = param(1, ge=1, doc="Blocks of fewer words are dropped.")

    def merger(self, max_len: int) -> Merger:
        """Join sentences into blocks, and drop those of few words."""
        return LongEnough(super().merger(max_len), self.parameters.min_word_len)


class CorpusMixPromptLoader(CorpusMixLoader):
    """As `corpus_mix`, in blocks that leave room for the prompt of `processor: bert_cl_single_prompt`."""

    class Parameters(CorpusMixLoader.Parameters):
        """What the corpus_mix_prompt loader can be told."""

        prompt_length: int = param(20, ge=1, doc="Tokens of a block that are kept free for a prompt in front of it.")

    def merger(self, max_len: int) -> Merger:
        """Join sentences into blocks that are shorter by the prompt."""
        return super().merger(max_len - self.parameters.prompt_length)


class LongEnough(Merger):
    """What another merger joins, without blocks of few words. Where no words are marked every token is one."""

    def __init__(self, inner: Merger, fewest: int) -> None:
        self._inner = inner
        self._fewest = fewest

    def feed(self, texts: Blocks, borders: NDArray[np.bool_]) -> Blocks:
        """Take some more texts; give the blocks that are complete and long enough."""
        return self._long_enough(self._inner.feed(texts, borders))

    def finish(self) -> Blocks:
        """Give what is left at the end of the file, if it is long enough."""
        return self._long_enough(self._inner.finish())

    def _long_enough(self, blocks: Blocks) -> Blocks:
        begins = marks.has(marks.WORD_START, blocks.values)
        counted = np.concatenate([[0], np.cumsum(begins if begins.any() else np.ones(len(begins), np.int64))])
        kept = np.diff(counted[blocks.offsets]) >= self._fewest
        lengths = np.diff(blocks.offsets)
        offsets = np.concatenate([[0], np.cumsum(lengths[kept])])
        return Blocks(blocks.values[np.repeat(kept, lengths)], offsets)
