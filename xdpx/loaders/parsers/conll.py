"""The parser `conll`: columns of words and tags, one word per line, blank lines between sentences."""

from __future__ import annotations

import io
from collections.abc import Iterator

from xdpx.config.parameters import param
from xdpx.loaders.parsers.base import BadLine, Row, RowParser, plain_delimiter
from xdpx.loaders.parsers.encodings import TextParameters
from xdpx.loaders.parsers.files import open_text

DOCUMENT = "-DOCSTART-"
BLANK = "\u2423"
"""Replaces words of only white space, so that every tag keeps its word: the sign for a space, an open box."""
WITHOUT_TAG = "has an empty tag"


class ConllParser(RowParser):
    """Reads sentences as two columns: the words, and their tags, each separated by spaces.

    Lines without a tag make an unlabelled file. `-DOCSTART-` lines are skipped.

    Source: Tjong Kim Sang and De Meulder, "Introduction to the CoNLL-2003 Shared Task", CoNLL 2003, section 2.
    """

    unit = "sentence"
    place = "sentence at line"

    class Parameters(TextParameters):
        """Keys of the conll parser."""

        delimiter: str | None = param(None, doc="Delimiter between a word and its tag; null: any white space.")
        word_column: int = param(0, doc="Position of the word in its line; negative from the end.")
        tag_column: int = param(-1, doc="Position of the tag in its line; negative from the end.")

        def conflicts(self) -> list[tuple[str, str]]:
            """Refuse an empty delimiter."""
            empty = [("delimiter", "is ''. Use a character such as a tab, or null for any white space.")]
            return [*super().conflicts(), *(empty if self.delimiter == "" else [])]

    def read(self, path: str) -> Iterator[tuple[int, Row | BadLine]]:
        """Yield (line where the sentence begins, its columns), or a BadLine."""
        for first, sentence in self.sentences(path):
            yield first, self._row(first, sentence)

    def sentences(self, path: str) -> Iterator[tuple[int, list[list[str]]]]:
        """Yield (line where the sentence begins, the columns of each of its lines)."""
        sentence: list[list[str]] = []
        first = 0
        given = self.parameters.delimiter
        delimiter = None if given is None else plain_delimiter(given)
        with open_text(path, self.parameters.encoding) as stream:
            lines = io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="\n")
            for number, line in enumerate(lines, 1):
                cells = line.rstrip("\r\n").split(delimiter) if line.strip() else []
                if cells and cells[0] != DOCUMENT:
                    first = first if sentence else number
                    sentence.append(cells)
                elif sentence:
                    yield first, sentence
                    sentence = []
            if sentence:
                yield first, sentence

    def _row(self, first: int, sentence: list[list[str]]) -> Row | BadLine:
        known, width = self.parameters, len(sentence[0])
        for offset, cells in enumerate(sentence):
            if len(cells) != width:
                return BadLine(first, f"has {width} columns in its first line, {len(cells)} in line {first + offset}")
        needed = max(known.word_column + 1, -known.word_column)
        if width < needed:
            return BadLine(first, f"has {width} columns, but word_column is {known.word_column}")
        words = " ".join("".join(cells[known.word_column].split()) or BLANK for cells in sentence)
        if width == 1:
            return [words]
        if width < max(known.tag_column + 1, -known.tag_column):
            return BadLine(first, f"has {width} columns, but tag_column is {known.tag_column}")
        tags = [cells[known.tag_column].strip() for cells in sentence]
        if "" in tags:
            return BadLine(first, f"{WITHOUT_TAG} in line {first + tags.index('')}")
        return [words, " ".join(tags)]

    def remedy(self, problem: str) -> str:
        """Return what to do about a row that cannot be used, for messages."""
        tags = "Write O for a word outside of every entity; to predict words, give lines of words alone. Else: "
        return tags * (WITHOUT_TAG in problem) + super().remedy(problem)
