"""Where unquoted text ends: at a comment; in brackets that close on the same line also at a comma; else with the line.

Anything else in the text that was probably not meant as text is reported, so that nothing is silently misread.
"""

from __future__ import annotations

import re
from typing import NamedTuple

QUOTED = {
    '"': re.compile(r'"([^"\\\n\t]*(?:\\.[^"\\\n\t]*)*)"'),
    "'": re.compile(r"'([^'\\\n\t]*(?:\\.[^'\\\n\t]*)*)'"),
}
NEXT_KEY = r"""(?:"[^"\n]*"|'[^'\n]*'|[^\s{}\[\],:"']+)\s*:(?!//)"""
_COMMENT = re.compile(r"\s(?=#|//|/\*)")
_COMMENT_ON_LINE = re.compile(r"/\*.*?\*/")
_COMMA_BEFORE_KEY = re.compile(rf"[,，](?=\s*(?:{NEXT_KEY}|\Z))")
_PAIR = re.compile(r":(?:\s|\Z)")
_PARTNER = {"}": "{", "]": "[", ")": "("}


class Swallowed(NamedTuple):
    """Something in unquoted text that was probably not meant as text.

    Attributes:
        offset: of its first character in the text.
        what: its name, e.g. `the comma`.
        remedy: what to do.
    """

    offset: int
    what: str
    remedy: str


def closing_bracket(text: str, opening: int) -> int:
    """Return the offset of the bracket that closes the one at `opening`, if on the same line; else -1."""
    opened: list[str] = []
    at, begins = opening, True  # a quote counts only at the start of a key or value
    while at < len(text) and text[at] != "\n":
        character = text[at]
        if character in "#/" and text[at - 1] in " \t{[,":
            comment = _COMMENT_ON_LINE.match(text, at)
            if not comment and text.startswith(("#", "//", "/*"), at):
                return -1
            at = comment.end() if comment else at + 1
            continue
        if begins and character in QUOTED:
            quoted = None if text.startswith("'''", at) else QUOTED[character].match(text, at)
            if not quoted:
                return -1
            at, begins = quoted.end(), False
            continue
        if character in "{[":
            opened.append(character)
        elif opened[-1] == _PARTNER.get(character):
            opened.pop()
            if not opened:
                return at
        begins = character in "{[,:" or (begins and character in " \t")
        at += 1
    return -1


def without_comment(line: str) -> str:
    """Return a text up to the comment after it: white space and `#`, `//` or `/*`."""
    comment = _COMMENT.search(line)
    return line[: comment.end()] if comment else line


def one_of_several(line: str, closer: str) -> str:
    """Return a text inside one-line brackets, up to the comma or bracket that ends it."""
    ends = (line.find(","), _unopened(line, closer))
    return line[: min((end for end in ends if end >= 0), default=len(line))]


def doubtful(text: str) -> tuple[str, str] | None:
    """Return why a text in one-line brackets was probably meant as several, and what to do; else None."""
    if _PAIR.search(text):
        return "a ':' and a blank", "Is a comma missing before a key, or { } around a pair? Quote what is a text."
    if "，" in text:
        return "a full-width comma", "Write ',' between values; quote what is a text."
    lonely = _lonely_bracket(text)
    if lonely or text.count('"') % 2:
        return f"""a {lonely or '"'} that has no partner""", "Quote the text."
    return None


def swallowed(line: str, closer: str) -> Swallowed | None:
    """Return the first comma or bracket in unquoted text that was probably not meant as text; None if there is none."""
    quote = "or quote the text."
    comma = re.search(",", line) if closer == "]" else _COMMA_BEFORE_KEY.search(line)
    bracket = _unopened(line, closer)
    found = []
    if comma:
        found.append(Swallowed(comma.start(), "the comma", f"Remove the comma, write one value per line, {quote}"))
    if bracket >= 0:
        found.append(Swallowed(bracket, f"the '{closer}'", f"Put '{closer}' on its own line, {quote}"))
    return min(found, default=None)


def _unopened(line: str, closer: str) -> int:
    """Return the offset of the first `closer` without an opening bracket in the line, or -1."""
    depth = 0
    for match in re.finditer(r"[{}\[\]]", line):
        if match[0] == closer and depth == 0:
            return match.start()
        depth += (match[0] == _PARTNER.get(closer)) - (match[0] == closer)
    return -1


def _lonely_bracket(text: str) -> str:
    """Return the first unmatched bracket in the text, or ''."""
    opened: list[str] = []
    for character in re.findall(r"[(){}\[\]]", text):
        if character in _PARTNER:
            if not opened or opened.pop() != _PARTNER[character]:
                return str(character)
        else:
            opened.append(character)
    return opened[0] if opened else ""
