"""Find the tokens of a text in it, for tokenizers that do not say where each came from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from xdpx.tokenizers.characters import fold

Span = tuple[int, int]
"""Characters of a text, the second one excluded."""

PIECE = "##"
"""What a word piece begins with that continues a word."""


def aligned(tokens: Sequence[str], text: str) -> list[Span]:
    """Return where each token stands in the text, in order; case and accents are ignored.

    A token that was changed, such as NUM8 for a number, gets all of the text between its neighbours; if each token was
    made of one word, that word.
    """
    plain, end = _folded(text), 0
    found: list[Span | None] = []
    for token in tokens:
        piece = _folded(token.removeprefix(PIECE))
        begin = plain.find(piece, end) if piece else -1
        found.append((begin, begin + len(piece)) if begin >= 0 else None)
        end = begin + len(piece) if begin >= 0 else end
    if None in found:
        words = [word.span() for word in re.finditer(r"\S+", text)]
        return words if len(words) == len(found) else list(_filled(found, len(text)))
    return [span for span in found if span is not None]


def _filled(found: Sequence[Span | None], length: int) -> Iterator[Span]:
    """Yield spans, with what lies between the neighbours for those that are missing."""
    runs = [(missing, list(run)) for missing, run in groupby(found, key=lambda span: span is None)]
    begins = [run[0][0] if run[0] is not None else 0 for _, run in runs]
    end = 0
    for (missing, run), behind in zip(runs, [*begins[1:], length], strict=True):
        for span in run:
            yield span if span is not None else (end, behind)
        end = end if missing or run[-1] is None else run[-1][1]


def _folded(text: str) -> str:
    """Return a text of the same length in lower case and, where one character remains one, without accents."""
    if text.isascii():
        return text.lower()
    return "".join(plain if len(plain := fold(character, lower=True)) == 1 else character for character in text)
