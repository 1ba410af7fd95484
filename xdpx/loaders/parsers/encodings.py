"""Conversion of text in any encoding, with any line ends, to UTF-8 with line feeds, which parsers expect."""

from __future__ import annotations

import codecs
import io
from typing import IO, Any

from xdpx.config.faults import ConfigError, Fault, did_you_mean
from xdpx.config.parameters import Parameters, param

MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Byte order marks; one that is a prefix of another comes after it."""

KNOWN = ("utf-8", "gbk", "gb18030", "gb2312", "big5", "utf-16", "latin-1", "cp1252", "cp1251", "shift_jis", "euc-kr")
"""Encodings to suggest for a misspelt one; Python supports more."""

UTF8 = "utf-8"
HEAD = 1 << 16
FEWEST = 20
"""Number of non-ASCII bytes from which valid UTF-8 cannot be a coincidence."""


class TextParameters(Parameters):
    """Keys of parsers of text."""

    encoding: str = param(
        UTF8, doc="Encoding of characters: utf-8, gbk, big5, cp1252, ...; a byte order mark takes precedence."
    )

    def conflicts(self) -> list[tuple[str, str]]:
        """Return a conflict if Python does not know the encoding."""
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            remedy = did_you_mean(self.encoding.lower(), KNOWN, "Use e.g. utf-8, gbk, utf-16, cp1252.")
            return [("encoding", f"there is no '{self.encoding}'. {remedy}")]
        return []


def marked(head: bytes) -> str:
    """Return the encoding given by a byte order mark; '' without one."""
    return next((name for mark, name in MARKS.items() if head.startswith(mark)), "")


def unmarked_utf16(head: bytes) -> str:
    """Return `utf-16-le` or `utf-16-be` for the start of such a text without a byte order mark; '' for any other."""
    units = [head[index : index + 2] for index in range(0, len(head) - 1, 2)]
    little, big = units.count(b"\n\0") + units.count(b"\t\0"), units.count(b"\0\n") + units.count(b"\0\t")
    found = "utf-16-le" if little > big else "utf-16-be"
    breaks = sum(head.count(sign) for sign in (b"\n", b"\t"))
    # In another text with NULs, hardly any line feed or tab has one beside it; half of a frequent Chinese character
    # is a line feed, too (U+4E0A).
    return found if max(little, big) > breaks / 5 and not min(little, big) else ""


def as_utf8(stream: IO[bytes], path: str, encoding: str) -> IO[bytes]:
    """Return a stream of UTF-8 with line feeds: `stream` itself, or one that converts it while it is read.

    A byte order mark overrides `encoding`. Carriage returns end lines if the start of the file has no line feed (Mac OS
    9). Bytes that are invalid in the encoding are kept, so that their lines are reported as not UTF-8.

    Raises:
        ConfigError: the file is UTF-8, but another encoding was given; it has no byte order mark, but its encoding
            requires one; or, while reading, its end is cut off.
    """
    head = stream.read(HEAD)
    stream.seek(0)
    _refuse_unknown_byte_order(head, path, encoding)
    said, name = codecs.lookup(encoding).name, marked(head)
    actual = (UTF8 if name == "utf-8-sig" else name) or said
    if not name and actual != UTF8 and _is_utf8(head):
        remedy = "Leave the key out; in x-eval and x-pred: extra_config: {encoding: utf-8}."
        raise ConfigError(path, [Fault("encoding", f"is '{encoding}', but the text is UTF-8.", remedy)])
    shown = head.decode(actual, "ignore")
    old_ends = "\r" in shown and "\n" not in shown
    if actual in {UTF8, "ascii"} and not old_ends:
        return stream
    return io.BufferedReader(_Converted(stream, path, actual, old_ends=old_ends), HEAD)


def _refuse_unknown_byte_order(head: bytes, path: str, encoding: str) -> None:
    said = codecs.lookup(encoding).name
    if said not in {"utf-16", "utf-32"} or marked(head) or not head:
        return
    likely = unmarked_utf16(head)
    remedy = f"Set encoding: {likely}." if likely else f"Set encoding: {said}-le or {said}-be, if it is {said} at all."
    problem = f"is '{encoding}', but the file does not begin with the byte order mark that this requires."
    raise ConfigError(path, [Fault("encoding", problem, remedy)])


def _is_utf8(head: bytes) -> bool:
    """Return whether bytes are valid UTF-8 with enough non-ASCII bytes to exclude other encodings."""
    decoder = codecs.getincrementaldecoder(UTF8)()
    try:
        decoder.decode(head)
    except UnicodeDecodeError:
        return False
    return sum(byte > 0x7F for byte in head) >= FEWEST


class _Converted(io.RawIOBase):
    """A stream that converts another one to UTF-8."""

    def __init__(self, stream: IO[bytes], path: str, encoding: str, *, old_ends: bool) -> None:
        self._stream = stream
        self._path = path
        self._encoding = encoding
        self._decode = codecs.getincrementaldecoder(encoding)("surrogateescape").decode
        self._old_ends = old_ends
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            data = self._stream.read(HEAD)
            try:
                text = self._decode(data, final=not data)
            except UnicodeDecodeError as error:
                problem = f"is not {self._encoding} text ({error.reason})"
                raise ConfigError(self._path, [Fault("encoding", f"{problem}.", "Is it truncated?")]) from error
            text = text.replace("\r", "\n") if self._old_ends else text
            self._ready = text.encode(UTF8, "surrogateescape")
            if not data:
                break
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size
