"""Facts about characters for tokenizers without a library, and the characters at which a text may be cut.

Every tokenizer that treats white space as a border may be asked word by word, and its answers remembered. That is exact
as long as a border is a border in any context, so the tables hold only characters for which this is certain; a border
that is missing here costs speed, never exactness.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WORD, WHITE, SINGLE, HIDDEN = 0, 1, 2, 3
"""Kinds of characters: part of a word; between words; a word of its own; taken for white space by Python alone."""

WHITE_SPACE = "\t\n\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""What BERT takes for white space: Unicode's white space without the control characters, which BERT drops."""

HIDDEN_SPACE = "\x0b\x0c\x1c-\x1f\x85"
"""What `str.split` takes for white space and BERT drops as control characters, joining the words on both sides."""

STAND_IN = 0x7F
"""DEL: dropped by BERT like every hidden space, and left alone by `str.split`."""

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
        """Cut at what Python takes for white space, and nowhere else."""
        return cls(_kinds((WHITE_SPACE, WHITE), (HIDDEN_SPACE, WHITE)))

    @classmethod
    def of_bert(cls, *, chinese: bool = True, whole: Iterable[str] = ()) -> Boundaries:
        """Cut where BERT's normaliser and pre-tokenizer do.

        Args:
            chinese: every ideograph is a word.
            whole: tokens such as `[MASK]` that are found in raw text; no character of theirs is a border.
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
    """Read `a-z,` as the code points ((97, 122), (44, 44)). A hyphen between two characters spans a range."""
    found = []
    position = 0
    while position < len(characters):
        spans = characters[position + 1 : position + 2] == "-" and position + 2 < len(characters)
        last = characters[position + 2] if spans else characters[position]
        found.append((ord(characters[position]), ord(last)))
        position += 3 if spans else 1
    return found


def is_punctuation(character: str) -> bool:
    """Return whether a character is punctuation: Unicode's, and every ASCII symbol that is no letter and no digit."""
    code = ord(character)
    if code < 128:
        return 33 <= code <= 126 and not character.isalnum()
    return unicodedata.category(character).startswith("P")


def is_control(character: str) -> bool:
    """Return whether a character is invisible and no white space: control, format, private use, or not assigned."""
    return unicodedata.category(character).startswith("C") and not character.isspace()


def fold(text: str, *, lower: bool) -> str:
    """Drop control characters and, with `lower`, upper case and accents."""
    if text.isascii() and text.isprintable():
        return text.lower() if lower else text
    if lower:
        text = unicodedata.normalize("NFD", text.lower())
    return "".join(
        character
        for character in text
        if not is_control(character) and not (lower and unicodedata.category(character) == "Mn")
    )
