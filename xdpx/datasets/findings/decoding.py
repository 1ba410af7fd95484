"""Texts that were decoded with another encoding than they were written in, before they came into a file."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from xdpx.datasets.findings.finding import Finding
from xdpx.datasets.findings.raw_files import Head

FEW = 0.01
"""Share of the first rows up to which wrong characters are left to x-check: some texts quote them."""

LOST = "\ufffd"

_UTF8_AS_LATIN = re.compile(
    "[\u00c2-\u00f4][\u0080-\u00bf\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc\u2013-\u203a\u20ac\u2122]"
)
_BROKEN_TWICE = re.compile("锟斤拷|烫烫烫|屯屯屯|ï»¿|â€|Ã©|Ã¨|Ã¤|Ã¶|Ã¼|Ð°|Ð¾|Ñ‚")
_UTF8_AS_GBK = re.compile("[锛銆鈥鐨鏄浜浠涓鍦][\u4e00-\u9fff\ue000-\uf8ff\u20ac]|\ue5cf|\ue21b")


def wrong_characters(path: str, head: Head) -> Iterator[Finding]:
    """Yield findings about the first rows of a raw file, if their letters are wrong ones or lost."""
    rows = [" ".join(row) for row in head.rows]
    beyond = [row for row in rows if not row.isascii()]
    lost = [row for row in beyond if LOST in row]
    known = [(row, better) for row in beyond if (better := as_meant(row)) is not None]
    place = f"{path}:{head.first_line}"
    if len(known) > FEW * len(rows):
        row, better = known[0]
        means = f", such as {row!r:.40}" + (f", where {better.strip()!r:.40} was meant" if better else "")
        problem = f"{len(known):,} of the first {len(rows):,} rows were decoded with a wrong encoding{means}."
        remedy = (
            "Write the file again from its source; text.encode('cp1252').decode() in Python undoes the usual mistake."
        )
        yield Finding("encoding", "warning", place, problem, remedy)
    if len(lost) > FEW * len(rows):
        problem = (
            f"{len(lost):,} of the first {len(rows):,} rows have U+FFFD, in place of a lost character: {lost[0]!r:.40}."
        )
        yield Finding("lost_characters", "warning", place, problem, "Write the file again from its source, as UTF-8.")
    asked = [row for row in rows if "??" in row and row.count("?") > sum(map(str.isalpha, row))]
    if 2 * len(asked) > len(rows):
        problem = f"{len(asked):,} of the first {len(rows):,} rows are mostly question marks: {asked[0]!r:.40}."
        remedy = "They stand for letters that an encoding lacks: write the file again from its source, as UTF-8."
        yield Finding("lost_characters", "warning", place, problem, remedy)


def as_meant(text: str) -> str | None:
    """Return a wrongly decoded part of a text decoded correctly, '' if that is impossible; None if nothing is wrong."""
    match = _UTF8_AS_LATIN.search(text)
    if match is not None:
        window = text[max(0, match.start() - 20) : match.start() + 40]
        for encoding in ("cp1252", "latin-1"):
            better = _decoded_again(window, encoding)
            if better is not None:
                return better
    if _BROKEN_TWICE.search(text):
        return ""
    match = _UTF8_AS_GBK.search(text)
    return _decoded_again(text[match.start() : match.start() + 12], "gb18030") if match is not None else None


def _decoded_again(text: str, encoding: str) -> str | None:
    """Return a text encoded and then decoded as UTF-8, None if that fails; a truncated last character is ignored."""
    try:
        data = text.encode(encoding)
    except UnicodeEncodeError:
        data = b"".join(sign.encode(encoding, "ignore") if ord(sign) > 0x7F else b" " for sign in text)
    for cut in range(4):
        try:
            better = data[: len(data) - cut].decode()
        except UnicodeDecodeError:
            continue
        beyond = [sign for sign in better if ord(sign) > 0x7F]
        fine = beyond and not any(unicodedata.category(sign) in {"Cc", "Cn", "Co"} for sign in beyond)
        return better if fine and len(better) < len(text) else None
    return None
