"""Tokenizers without a library: at white space, with Chinese split into characters, or words as they are."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import chain

from xdpx.config.parameters import param
from xdpx.tokenizers.base import Tokenizer
from xdpx.tokenizers.characters import IDEOGRAPHS, Boundaries, fold, is_punctuation


class SpaceTokenizer(Tokenizer):
    """Splits at white space, and removes control characters; with `lower` also accents."""

    boundaries = Boundaries.of_white_space()

    class Parameters(Tokenizer.Parameters):
        """Keys of the space tokenizer."""

        rm_punc: bool = param(False, doc="Treat punctuation as white space.")

    def tokenize(self, text: str) -> list[str]:
        """Return the words of one text."""
        if self.parameters.rm_punc and not text.isalnum():
            text = "".join(" " if is_punctuation(character) else character for character in text)
        words = (fold(word, lower=self.parameters.lower) for word in text.split())
        return [word for word in words if word]

    def count(self, texts: Iterable[str]) -> Counter[str]:
        """Return the counts of the tokens of many texts; each distinct word is tokenized once."""
        counts: Counter[str] = Counter()
        for word, times in Counter(chain.from_iterable(map(str.split, texts))).items():
            for token in self.tokenize(word):
                counts[token] += times
        return counts


LONGEST_NUMBER = 4
"""Maximum number of digits of a number that is kept; a longer one becomes `NUM<number of digits>`."""

_TOKEN = re.compile(rf"[{IDEOGRAPHS}]|\d+(?:\.\d+)?|[^\W\d_{IDEOGRAPHS}]+|([^\w\s]|_)\1*")


class ChineseCharacterTokenizer(Tokenizer):
    """Splits Chinese into characters, other text into words and numbers; `!!!` becomes `!`, `20240131` `NUM8`."""

    def tokenize(self, text: str) -> list[str]:
        """Return the characters, words, numbers and punctuation marks of one text."""
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
    """Splits only at white space, as loaders split segmented text into words."""

    def tokenize(self, text: str) -> list[str]:
        """Return the words of one text."""
        return (text.lower() if self.parameters.lower else text).split()
