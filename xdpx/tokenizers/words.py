"""Words and characters, cut without a library: between white space, Chinese one by one, or as they stand."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import chain

from xdpx.config.parameters import param
from xdpx.tokenizers.base import Tokenizer
from xdpx.tokenizers.characters import IDEOGRAPHS, Boundaries, fold, is_punctuation


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


LONGEST_NUMBER = 4
"""A number of more digits becomes `NUM<digits>`: its length says more than its digits."""

_TOKEN = re.compile(rf"[{IDEOGRAPHS}]|\d+(?:\.\d+)?|[^\W\d_{IDEOGRAPHS}]+|([^\w\s]|_)\1*")


class ChineseCharacterTokenizer(Tokenizer):
    """Cut Chinese into characters, Latin text into words and numbers; `!!!` becomes `!`, `20240131` becomes `NUM8`."""

    def tokenize(self, text: str) -> list[str]:
        """Cut one text into characters, words, numbers and marks."""
        return [_token(found) for found in _TOKEN.finditer(fold(text, lower=self.parameters.lower))]


def _token(found: re.Match[str]) -> str:
    if found.group(1):
        return found.group(1)
    text = found.group()
    if len(text) > LONGEST_NUMBER and text[0].isdigit():
        digits = sum(character.isdigit() for character in text)
        return f"NUM{digits}" if digits > LONGEST_NUMBER else text
    return text


class WholeWords(Tokenizer):
    """Every run of characters without white space is a token, as loaders cut segmented text into words."""

    def tokenize(self, text: str) -> list[str]:
        """Cut one text at its white space."""
        return (text.lower() if self.parameters.lower else text).split()
