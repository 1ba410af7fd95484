"""Parse hjson, and JSON as a subset of it, into values with positions; likely mistakes in unquoted text become faults.

It differs from hjson in where unquoted text ends (see `unquoted`): at a comment, and in `[a, b]` and `{a: x, b: y}` at
the comma or the bracket. The hjson package is not used, because it keeps no positions, takes quadratic time on hostile
lines, and silently reads comments as text. Tests compare this reader with it on all other inputs.
"""

from __future__ import annotations

import re
from typing import NoReturn

from xdpx.config.faults import Fault
from xdpx.config.located import Located, Table
from xdpx.config.source_text import MAX_DEPTH, SourceText, Unreadable, excerpt, plain_thousands, read_number, short_path
from xdpx.config.unquoted import NEXT_KEY, QUOTED, closing_bracket, doubtful, one_of_several, swallowed, without_comment

_GAP = re.compile(r"(?:[ \t\n]+|#[^\n]*|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_BLANKS = re.compile(r"[ \t\u00a0\u3000]*")  # copied from a page, or typed on a Chinese keyboard
_BARE_KEY = re.compile(r"[^ \t\n{}\[\],:]+")
_URL_KEY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s{}\[\],]*?(?=[ \t]*:(?:\s|\Z))")
"""A path such as s3://bucket/file as a key, up to a colon with white space behind it; `//` begins no comment there."""
_AFTER_KEY = re.compile(r"[ \t\n]*:")
_LITERAL = re.compile(
    r"(true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)[^\S\n]*(?=[,}\]#\n]|//|/\*|\Z)"
)
_WORDS = {"true": True, "false": False, "null": None}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_ESCAPES = {'"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_INVISIBLE = re.compile(r"[^\S \t\n]|[\u200b-\u200f\u2060\ufeff]")
_DIGITS_AND_COMMA = re.compile(r"(\d+),\Z")
_LOOKS_LIKE_KEY = re.compile(NEXT_KEY)
_NO_VALUE = frozenset({"", "}", "]", ",", ":"})
_TYPOGRAPHIC = "“”‘’„「」『』《"
_INSIDE_TYPOGRAPHIC = re.compile(rf"[{_TYPOGRAPHIC}]([^{_TYPOGRAPHIC}]*).*", re.DOTALL)
_FULL_WIDTH = {"｛": "{", "｝": "}", "［": "[", "］": "]"}


def read_hjson(source: SourceText, faults: list[Fault]) -> Located:
    """Return the content of a whole file: one dict (braces optional) or one list.

    Likely mistakes and duplicate keys are added to `faults`, and reading continues with the probable meaning.

    Raises:
        Unreadable: at the first syntax error.
    """
    return _HjsonReader(source, faults).document()


def read_value(text: str, file: str) -> Located:
    """Return one value from outside a file, e.g. the command line.

    Text that does not start with a bracket or quote is a literal (number, true, false, null) or else a string as it is.

    Raises:
        Unreadable: a syntax error, text after the value, or a number out of range.
    """
    reader = _HjsonReader(SourceText(text, file), [])
    if not text.startswith(("{", "[", '"', "'")):
        literal = _LITERAL.fullmatch(text)
        value = reader.literal("value", literal[1], 0) if literal else text
        located = Located(value, reader.source.written(0))
    else:
        located = reader.value("value", "", 0)
        reader.end_of_document()
    for fault in reader.faults:
        raise Unreadable(fault)
    return located


class _HjsonReader:
    def __init__(self, source: SourceText, faults: list[Fault]) -> None:
        self.source = source
        self.text = source.text
        self.faults = faults
        self.at = 0
        self.one_line_until = -1  # offset of the bracket that closes, on the same line, the current list or dict
        self.trapped_line = 0

    # ---------------------------------------------------------------- structure

    def document(self) -> Located:
        self.skip_gap()
        start = self.at
        if self.peek() in {"{", "["}:
            located = self.value("", "", 0)
        elif self.peek():
            located = Located(self.pairs("", "", 0, start), self.source.written(start))
        else:
            self.stop("file", "holds only comments.", "Write at least `{}`.", start)
        self.end_of_document()
        return located

    def end_of_document(self) -> None:
        self.skip_gap()
        if self.at < len(self.text):
            rest = self.line_from(self.at)
            self.stop("syntax", f"{excerpt(rest)} comes after the end.", "Is a bracket closed too early?")

    def value(self, path: str, closer: str, depth: int) -> Located:
        """Read the value that begins here; `closer` is the bracket that ends the enclosing list or dict."""
        blanks = _BLANKS.match(self.text, self.at)
        self.at = blanks.end() if blanks else self.at
        start, character = self.at, self.peek()
        if character in {"{", "["} and depth >= MAX_DEPTH:
            self.stop(path, f"is nested deeper than {MAX_DEPTH} levels.", "Flatten it.")
        if character in _NO_VALUE or character == "\n":
            self.stop(path, "has no value.", 'Write one; `null` or "" for nothing.')
        if character in {"{", "["} and start > self.one_line_until:
            self.one_line_until = closing_bracket(self.text, start)
        if character == "{":
            self.at += 1
            return Located(self.pairs(path, "}", depth + 1, start), self.source.written(start))
        if character == "[":
            self.at += 1
            return Located(self.items(path, depth + 1, start), self.source.written(start))
        if self.text.startswith("'''", start):
            return Located(self.long_text(path), self.source.written(start))
        if character in QUOTED:
            return Located(self.quoted(path), self.source.written(start))
        return Located(self.bare(path, closer), self.source.written(start))

    def pairs(self, path: str, closer: str, depth: int, start: int) -> Table:
        """Read `key: value` pairs up to `closer`, or to the end of the file if that is ''."""
        table: Table = {}
        self.skip_gap()
        while self.peek() != closer:
            if not self.peek():
                self.stop(path or "syntax", "the '{' that opens here is never closed.", "Add '}'.", start)
            self.pair(path, closer, depth, table)
            self.skip_gap()
            if self.peek() == ",":
                self.at += 1
                self.skip_gap()
        self.at += len(closer)
        return table

    def pair(self, path: str, closer: str, depth: int, table: Table) -> None:
        start = self.at
        key = self.key()
        inner = f"{path}.{key}" if path else key
        colon = self.at
        self.skip_gap()
        origin = self.source.written(start)
        located = Located(None, origin) if self.has_no_value(inner, colon) else self.value(inner, closer, depth)
        if key in table:
            problem = f"is written twice: on line {table[key].origin.line} and on line {origin.line}."
            self.fault(inner, problem, "Remove one.", start)
        table[key] = Located(located.value, origin)

    def has_no_value(self, path: str, colon: int) -> bool:
        """Report a key without a value, followed by a bracket, a comma, the end, or a key on a later line."""
        missing = self.peek() in _NO_VALUE
        if not missing and self.source.line(colon) < self.source.line(self.at):
            line = self.line_from(self.at)
            missing = bool(_LOOKS_LIKE_KEY.match(line))
        if missing:
            self.fault(path, "has no value.", 'Write one; `null` or "" for nothing.', colon - 1)
        return missing

    def items(self, path: str, depth: int, start: int) -> list[Located]:
        found: list[Located] = []
        self.skip_gap()
        comma = self.at
        while self.peek() != "]":
            if not self.peek():
                self.stop(path or "syntax", "the '[' that opens here is never closed.", "Add ']'.", start)
            if self.peek() in {",", "}", ":"}:
                self.stop(path or "syntax", f"found '{self.peek()}' where a list item was expected.", "")
            item, character = self.at, self.peek()
            found.append(self.value(f"{path}[{len(found)}]", "]", depth))
            text = character not in QUOTED and isinstance(found[-1].value, str)
            if text and comma < item < self.one_line_until:
                self.stop(path or "syntax", f"no comma before {excerpt(self.line_from(item))}.", "Add it.", item)
            self.skip_gap()
            if self.peek() == ",":
                self.at += 1
                self.skip_gap()
                comma = self.at
        self.at += 1
        return found

    # ---------------------------------------------------------------- keys and scalars

    def key(self) -> str:
        """Read a key and the colon after it."""
        start = self.at
        key = self.quoted("syntax") if self.peek() in QUOTED else self.bare_key(start)
        colon = _AFTER_KEY.match(self.text, self.at)
        if not colon:
            self.no_colon(key, start)
        self.at = colon.end()
        return key

    def bare_key(self, start: int) -> str:
        match = _URL_KEY.match(self.text, start) or _BARE_KEY.match(self.text, start)
        if not match:
            what = (
                "no key before the ':'." if self.peek() == ":" else f"found '{self.peek()}' where a key was expected."
            )
            self.stop("syntax", what, "Is a bracket or a quote missing above?")
        hidden = _INVISIBLE.search(match[0])
        if hidden:
            code = f"U+{ord(hidden[0]):04X}"
            self.fault(match[0], f"holds the invisible character {code}.", "Remove it.", start + hidden.start())
        self.at = match.end()
        return self.without_typographic_quotes(match[0], match[0], start)

    def without_typographic_quotes(self, path: str, text: str, start: int) -> str:
        """Report quotes as word processors write them, and return what stands inside them."""
        if text[0] not in _TYPOGRAPHIC:
            return text
        self.fault(path, f"{excerpt(text)} begins with a typographic quote.", "Use \" or '.", start)
        return _INSIDE_TYPOGRAPHIC.sub(r"\1", text)

    def no_colon(self, key: str, start: int) -> NoReturn:
        line = self.line_from(start)
        if line[:1] in _FULL_WIDTH:
            self.stop("syntax", f"'{line[0]}' is a full-width bracket.", f"Use '{_FULL_WIDTH[line[0]]}'.", start)
        if "：" in line:
            self.stop("syntax", f"{excerpt(line)} has a full-width colon.", "Use ':'.", start)
        if "=" in line:
            self.stop("syntax", f"{excerpt(line)} has no ':'.", "Write `key: value`, not `key = value`.", start)
        whole = _DIGITS_AND_COMMA.search(self.text, 0, start)
        if whole and key.isdecimal():
            written = f"{whole[1]},{key}"
            number = plain_thousands(written) or f"{whole[1]}.{key}"
            remedy = f"Write {number} for a number, or [{whole[1]}, {key}] for a list."
            self.stop("syntax", f"a comma in '{written}' ends the value.", remedy, start)
        self.stop("syntax", f"no ':' after {excerpt(key)}.", "Write `key: value`; quote a key that has spaces.", start)

    def quoted(self, path: str) -> str:
        start = self.at
        match = QUOTED[self.text[start]].match(self.text, start)
        if not match:
            tab = self.line_from(start).find("\t")
            if tab >= 0:
                self.stop(path, "holds a raw tab inside quotes.", "Write \\t.", start + tab)
            self.stop(path, "the quote that opens here is not closed on its line.", "Close it; ''' for several lines.")
        self.at = match.end()
        body = _ESCAPE.sub(lambda escape: self.unescape(path, escape, start + 1), match[1])
        try:  # joins surrogate pairs; a lone surrogate cannot be encoded as UTF-8
            return body.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            self.stop(path, "holds half of a surrogate pair (\\uD800 to \\uDFFF).", "Write both halves.", start)

    def unescape(self, path: str, escape: re.Match[str], offset: int) -> str:
        code = escape[1]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        if code not in _ESCAPES:
            self.stop(
                path,
                f"'\\{code}' is not an escape.",
                "Write \\\\ for a backslash; paths may have /.",
                offset + escape.start(),
            )
        return _ESCAPES[code]

    def long_text(self, path: str) -> str:
        """Read a ''' text, with the indentation of the opening quotes removed from its lines."""
        start = self.at
        end = self.text.find("'''", start + 3)
        if end < 0:
            self.stop(path, "the ''' that opens here is never closed.", "Add '''.")
        self.at = end + 3
        indent = start - (self.text.rfind("\n", 0, start) + 1)
        first, *rest = self.text[start + 3 : end].split("\n")
        lines = [first.lstrip(" \t"), *(_unindented(line, indent) for line in rest)]
        if rest and not lines[0]:
            lines = lines[1:]
        return "\n".join(lines).removesuffix("\n")

    def bare(self, path: str, closer: str) -> str | int | float | bool | None:
        """Read an unquoted value: a literal, or text to the end of the line."""
        start = self.at
        literal = _LITERAL.match(self.text, start)
        if literal:
            self.at = literal.end()
            return self.literal(path, literal[1], start)
        line = without_comment(self.line_from(start))
        if start < self.one_line_until:
            text = one_of_several(line, closer)
            self.check_meant(path, text.strip(), start)
        else:
            text = self.check_swallowed(path, line, closer)
        self.at = start + len(text)
        if self.peek() == "，":  # already reported; continue after it
            self.at += 1
        return self.without_typographic_quotes(path, text, start).strip()

    def check_meant(self, path: str, text: str, start: int) -> None:
        """Report a text in one-line brackets that was probably meant as several values."""
        doubt = doubtful(text)
        if doubt:
            problem = f"the unquoted text {excerpt(text)} inside one-line brackets holds {doubt[0]}."
            self.fault(path, problem, doubt[1], start)

    def check_swallowed(self, path: str, line: str, closer: str) -> str:
        """Report a comment, key or bracket that unquoted text includes, and return the text without it."""
        taken = None if line[0] in _TYPOGRAPHIC else swallowed(line, closer)
        if not taken:
            return line
        number = self.source.line(self.at)
        if number != self.trapped_line:
            self.trapped_line = number  # further ones on this line have the same cause
            problem = f"the unquoted text {excerpt(line)} runs to the end of its line and takes {taken.what} with it."
            self.fault(path, problem, taken.remedy, self.at + taken.offset)
        return line[: taken.offset]

    def literal(self, path: str, text: str, start: int) -> int | float | bool | None:
        if text in _WORDS:
            return _WORDS[text]
        try:
            return read_number(text)
        except ValueError as error:
            self.fault(path, str(error), "Quote it if it is a text.", start)
            return 0

    # ---------------------------------------------------------------- position

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def line_from(self, offset: int) -> str:
        """Return the text from `offset` to the end of its line, without copying the rest of the file."""
        end = self.text.find("\n", offset)
        return self.text[offset : end if end >= 0 else len(self.text)]

    def skip_gap(self) -> None:
        """Skip white space and comments."""
        gap = _GAP.match(self.text, self.at)
        self.at = gap.end() if gap else self.at
        if self.text.startswith("/*", self.at):
            self.stop("syntax", "the comment that opens here is never closed.", "Add */.")

    def fault(self, key: str, problem: str, remedy: str, offset: int) -> None:
        self.faults.append(Fault(short_path(key), problem, remedy, self.source.place(offset)))

    def stop(self, key: str, problem: str, remedy: str, offset: int | None = None) -> NoReturn:
        place = self.source.place(self.at if offset is None else offset)
        raise Unreadable(Fault(short_path(key), problem, remedy, place))


def _unindented(line: str, indent: int) -> str:
    """Remove at most `indent` blanks from the front of a line."""
    blanks = len(line) - len(line.lstrip(" \t"))
    return line[min(indent, blanks) :]
