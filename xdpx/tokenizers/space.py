"""Words between white space."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain

from xdpx.config.parameters import param
from xdpx.tokenizers.base import Tokenizer
from xdpx.tokenizers.boundaries import Boundaries
from xdpx.tokenizers.characters import fold, is_punctuation


class SpaceTokenizer(Tokenizer):
    """Cut at white space. With `lower`, accents go too; control characters always do."""

    boundaries = Boundaries.of_white_space()

    class Parameters(Tokenizer.Parameters):
        """What the space tokenizer can be told."""

        rm_punc: bool = param(False, doc="Take punctuation for white space.")

    def tokenize(self, text: str) -> list[str]:
        """Cut one text into words."""
        if self.parameters.rm_punc and not text.isalnum():
            text = "".join(" " if is_punctuation(character) else character for character in text)
        words = (fold(word, lower=self.parameters.lower) for word in text.split())
        return [word for word in words if word]

    def count(self, texts: Iterable[str]) -> Counter[str]:
        """Count the tokens of many texts, cutting each distinct word once."""
        counts: Counter[str] = Counter()
        for word, times in Counter(chain.from_iterable(map(str.split, texts))).items():
            for token in self.tokenize(word):
                counts[token] += times
        return counts
