"""Words and their tags: one word per line, blank lines between sentences (CoNLL), and how tags are written."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from itertools import groupby

from xdpx.datasets.guessing.decision import question
from xdpx.loaders.parsers.base import Row
from xdpx.loaders.parsers.conll import BLANK, DOCUMENT

EVEN = 0.95
"""Minimum share of lines that end in a tag."""

_TAG = re.compile(r"O|[BIESMLU]-.+")
_OTHER_WRITING = re.compile(r"[BIESMLU]_.+")


def plain_tag(tag: str) -> str:
    """Return a tag with its prefix in capitals and a hyphen behind it: B-per for b_per."""
    large = tag[:1].upper() + tag[1:]
    return large[0] + "-" + large[2:] if _OTHER_WRITING.fullmatch(large) else large


def is_tag(text: str) -> bool:
    """Return whether a text is O or begins as the tag of a word in an entity."""
    return _TAG.fullmatch(plain_tag(text)) is not None


def are_tags(tags: Collection[str]) -> bool:
    """Return whether tags have the prefixes of the beginnings and insides of entities."""
    return "O" in map(plain_tag, tags) and all(map(is_tag, tags))


def joined(words: Iterable[str]) -> str:
    """Return words with blanks between them, and none within."""
    return " ".join("".join(word.split()) or BLANK for word in words)


def read_conll(path: str, text: str, *, sure: bool) -> tuple[list[Row], tuple[str, ...]] | None:
    """Return sentences, of words and their tags, and what was left out; None if lines do not end in tags.

    Args:
        path: the file.
        text: in it.
        sure: whether its name says that it is of this kind.

    Raises:
        ConfigError: a few lines have no tag.
    """
    written = ["" if line.startswith(DOCUMENT) else line.strip() for line in text.split("\n")]
    delimiter = "\t" if all("\t" in line for line in written if line) else None  # words may hold blanks
    lines = [line.split(delimiter) if line else [] for line in written]
    there = [(number, cells) for number, cells in enumerate(lines, 1) if cells]
    ends = [cells[-1] for _, cells in there if len(cells) > 1 and is_tag(cells[-1])]
    said = sum(not cells[0].startswith("#") for _, cells in there)
    in_tags = are_tags(set(ends)) and len(ends) >= EVEN * said
    if not sure and (not in_tags or [] not in lines[there[0][0] : there[-1][0]]):
        return None
    bare = [(number, cells) for number, cells in there if len(cells) < 2 or (in_tags and not is_tag(cells[-1]))]
    remarks = {number: cells for number, cells in bare if number == there[0][0] or cells[0].startswith("#")}
    if missing := next(((number, cells) for number, cells in bare if number not in remarks), None):
        problem = f"line {missing[0]:,}, {' '.join(missing[1])!r:.40}, does not end in a tag, as the others do."
        raise question(
            path, "file", problem, "Write one behind the word, such as O; or a blank line between sentences."
        )
    kept = [[] if number in remarks else cells for number, cells in enumerate(lines, 1)]
    sentences = [list(lines) for some, lines in groupby(kept, key=bool) if some]
    rows = [
        [joined(cells[0] for cells in sentence), joined(plain_tag(cells[-1]) for cells in sentence)]
        for sentence in sentences
    ]
    shown = next((" ".join(cells) for cells in remarks.values()), "")
    plural = f"{len(remarks):,} lines" if len(remarks) > 1 else "a line"
    return rows, ((f"{plural} without a word and a tag: {shown!r:.40}",) if remarks else ())
