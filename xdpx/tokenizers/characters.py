"""Properties of characters for tokenizers without a library, and the characters at which texts can be split.

Tokenizers that treat white space as a border can be called word by word, and their results cached. This is exact if a
border is a border in any context, so the tables contain only characters for which this is certain; a missing border
costs speed, never exactness.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WORD, WHITE, SINGLE, HIDDEN = 0, 1, 2, 3
"""Kinds of characters: part of a word; between words; a word of its own; white space for Python but not for BERT."""

WHITE_SPACE = "\t\n\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""White space for BERT: that of Unicode without the control characters, which BERT drops."""

HIDDEN_SPACE = "\x0b\x0c\x1c-\x1f\x85"
"""White space for `str.split` that BERT drops as control characters, joining the words on both sides."""

STAND_IN = 0x7F
"""DEL, which replaces hidden spaces: BERT drops it, too, but `str.split` does not split at it."""

PUNCTUATION = "!-/:-@[-`{-~\u00a1\u00a7\u00ab\u00b6\u00b7\u00bb\u00bf\u2010-\u2027\u2030-\u2043"
CJK_PUNCTUATION = "\u3001-\u3003\u3008-\u3011\u3014-\u301f\uff01-\uff03\uff05-\uff0a\uff0c-\uff0f\uff1a\uff1b\uff1f"
IDEOGRAPHS = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b81f\U0002f800-\U0002fa1f"


@dataclass(frozen=True)
class Boundaries:
    """The kind of each code point.

    Attributes:
        kinds: uint8, shape (0x110000,); WORD, WHITE, SINGLE or HIDDEN.
    """

    kinds: NDArray[np.uint8]

    @classmethod
    def of_white_space(cls) -> Boundaries:
        """Return the boundaries of `str.split`: white space only."""
        return cls(_kinds((WHITE_SPACE, WHITE), (HIDDEN_SPACE, WHITE)))

    @classmethod
    def of_bert(cls, *, chinese: bool = True, whole: Iterable[str] = ()) -> Boundaries:
        """Return the boundaries of BERT's normaliser and pre-tokenizer.

        Args:
            chinese: whether every ideograph is a word.
            whole: tokens such as `[MASK]` that are recognised in raw text; their characters are not borders.
        """
        singles = PUNCTUATION + CJK_PUNCTUATION + (IDEOGRAPHS if chinese else "")
        kinds = _kinds((singles, SINGLE), (WHITE_SPACE, WHITE), (HIDDEN_SPACE, HIDDEN))
        for character in {character for token in whole for character in token}:
            kinds[ord(character)] = WORD
        return cls(kinds)


def _kinds(*groups: tuple[str, int]) -> NDArray[np.uint8]:
    kinds = np.zeros(sys.maxunicode + 1, np.uint8)
    for characters, kind in groups:
        for first, last in ranges(characters):
            kinds[first : last + 1] = kind
    return kinds


def ranges(characters: str) -> list[tuple[int, int]]:
    """Return ranges of code points: [(97, 122), (44, 44)] for `a-z,`. A hyphen between two characters spans a range."""
    found = []
    position = 0
    while position < len(characters):
        spans = characters[position + 1 : position + 2] == "-" and position + 2 < len(characters)
        last = characters[position + 2] if spans else characters[position]
        found.append((ord(characters[position]), ord(last)))
        position += 3 if spans else 1
    return found


def is_punctuation(character: str) -> bool:
    """Return whether a character is punctuation in Unicode, or an ASCII symbol other than a letter or digit."""
    code = ord(character)
    if code < 128:
        return 33 <= code <= 126 and not character.isalnum()
    return unicodedata.category(character).startswith("P")


def is_control(character: str) -> bool:
    """Return whether a character is of category C (control, format, private use, unassigned) and not white space."""
    return unicodedata.category(character).startswith("C") and not character.isspace()


def fold(text: str, *, lower: bool) -> str:
    """Return a text without control characters and, with `lower`, in lower case without accents."""
    if text.isascii() and text.isprintable():
        return text.lower() if lower else text
    if lower:
        text = unicodedata.normalize("NFD", text.lower())
    return "".join(
        character
        for character in text
        if not is_control(character) and not (lower and unicodedata.category(character) == "Mn")
    )
