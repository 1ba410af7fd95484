"""Checks whether files of words and tags are that: plain sentences and headers are read as words with tags, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from itertools import islice

from xdpx.datasets.findings.finding import Finding
from xdpx.datasets.findings.raw_files import LOOKED_AT, Head, are_no_labels, is_column_name
from xdpx.loaders.parsers.base import Parser, plain_delimiter
from xdpx.loaders.parsers.conll import ConllParser
from xdpx.loaders.tagged import TaggedLoader
from xdpx.tokenizers.target_map import folded

PLAIN = 'For plain sentences, one per line, set parser: "none"; the parser conll reads one word per line.'
"""What to do with texts for a tagger."""


def plain_text(path: str, parser: Parser, *, tags: Set[str]) -> Iterator[Finding]:
    """Yield a finding if a file for the parser conll is plain text, of which it would read a word per line.

    Most of its lines stand alone, as if every sentence had one word, and differ in their number of columns; or with a
    delimiter, most lines are a single column with blanks in it.

    Args:
        path: the raw file.
        parser: of the file.
        tags: of the model, folded.
    """
    if not isinstance(parser, ConllParser):
        return
    sentences = list(islice(parser.sentences(path), LOOKED_AT))
    lines = [cells for _, sentence in sentences for cells in sentence]
    texts = sum(len(cells) == 1 and len(cells[0].split()) > 1 for cells in lines)
    problem = ""
    if len(set(map(len, lines))) > 1 and 2 * sum(_is_text(lines, tags) for _, lines in sentences) > len(sentences):
        problem = "lines have different numbers of columns, as plain sentences do"
    elif 2 * texts > len(lines):
        problem = (
            f"most lines have no {plain_delimiter(parser.parameters.delimiter)!r}, but blanks, as plain sentences do"
        )
    if problem:
        place, shown = f"{path}:{sentences[0][0]}", " ".join(lines[0])
        yield Finding("columns", "fault", place, f"{problem}: {shown!r:.60}.", PLAIN)


def _is_text(lines: Sequence[Sequence[str]], tags: Set[str]) -> bool:
    """Return whether lines without a blank one between them may be text: one alone, or uneven ones without tags."""
    return len(lines) == 1 or (len(set(map(len, lines))) > 1 and tags.isdisjoint(folded(cells[-1]) for cells in lines))


def without_tags(path: str, head: Head, parser: Parser, loader: TaggedLoader, *, tags: Set[str]) -> Iterator[Finding]:
    """Yield findings about a file whose last column is read as tags: a header, or no tag that the model knows.

    Args:
        path: the raw file.
        head: its first rows.
        parser: of the file.
        loader: of the model.
        tags: of the model, folded.
    """
    found = [folded(tag) for row in head.rows for tag in loader.labels_of(row[-1])]
    if not found or not tags:
        return
    place, first = f"{path}:{head.first_line}", (folded(head.rows[0][0].split()[0]), found[0])
    if isinstance(parser, ConllParser) and found[0] not in tags and all(map(is_column_name, first)):
        problem = f"the first line looks like the names of columns: {', '.join(map(repr, first))}."
        yield Finding("header", "fault", place, problem, "Delete it.")
    if are_no_labels(found, tags):
        problem = f"the last column, read as tags, has no tag of training, such as {found[0]!r:.60}."
        yield Finding("columns", "fault", place, problem, f"Give words alone, or with their tags behind them. {PLAIN}")
