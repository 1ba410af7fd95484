"""Chinese characters one by one, other words whole."""

from __future__ import annotations

import re

from xdpx.tokenizers.base import Tokenizer
from xdpx.tokenizers.boundaries import IDEOGRAPHS
from xdpx.tokenizers.characters import fold

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
