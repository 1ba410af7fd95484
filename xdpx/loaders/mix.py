"""Segmented texts: a space between words, of which a model may know more than the pieces that they are made of."""

from __future__ import annotations

from typing import ClassVar

from xdpx.config.parameters import param
from xdpx.loaders.base import Loader
from xdpx.loaders.pair import PairLoader


class MixLoader(Loader):
    """What the loaders of segmented texts share: the first token of each word is marked, and no word is lost."""

    marks_words: ClassVar[bool] = True
    keeps_words: ClassVar[bool] = True

    class Parameters(Loader.Parameters):
        """What the loaders of segmented texts can be told."""

        with_words: bool = param(False, doc="Give the words too, numbered by word_vocab.txt, beside their pieces.")

    @property
    def gives_words(self) -> bool:
        """Whether samples hold the words themselves."""
        return bool(self.parameters.with_words)


class SingleMixLoader(MixLoader):
    """Columns: text, label; the text with a space between its words. The label may be missing."""


class PairMixLoader(MixLoader, PairLoader):
    """Columns: text1, text2, label; the texts with a space between their words. The label may be missing."""
