"""Small facts about single characters, shared by the tokenizers that work without a library."""

from __future__ import annotations

import unicodedata

from xdpx.tokenizers.boundaries import IDEOGRAPHS, ranges

_IDEOGRAPHS = ranges(IDEOGRAPHS)


def is_ideograph(character: str) -> bool:
    """Whether a character is a Chinese one (also used in Japanese and Korean)."""
    code = ord(character)
    return any(first <= code <= last for first, last in _IDEOGRAPHS)


def is_punctuation(character: str) -> bool:
    """Whether a character is punctuation: Unicode's, and every ASCII symbol that is no letter and no digit."""
    code = ord(character)
    if code < 128:
        return 33 <= code <= 126 and not character.isalnum()
    return unicodedata.category(character).startswith("P")


def is_control(character: str) -> bool:
    """Whether a character is invisible and no white space: control, format, private use, or not assigned."""
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
