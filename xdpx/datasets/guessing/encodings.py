"""Decode files of unknown encoding."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from itertools import pairwise

from xdpx.datasets.guessing.decision import Decision, Wishes, question
from xdpx.loaders.parsers.encodings import marked

WIDER = {
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "hz": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "latin_1": "cp1252",
    "iso8859-1": "cp1252",
}
"""Encoding -> a superset of it, which programs actually write."""

ZIP = b"PK\x03\x04"
"""First bytes of a zip archive, which an .xlsx workbook is too."""

NO_TEXT = {
    b"\xd0\xcf\x11\xe0": ("an old Excel or Word file (.xls, .doc)", "Save it as .xlsx or .csv."),
    b"%PDF": ("a PDF", "Export a table from the program that made it: .csv or .xlsx."),
    b"\x1f\x8b": ("compressed by gzip", "Give it the ending .gz."),
    b"BZh": ("compressed by bzip2", "Give it the ending .bz2."),
    b"\xfd7zXZ": ("compressed by xz", "Give it the ending .xz."),
    b"\x28\xb5\x2f\xfd": ("compressed by zstd", "Unpack it: zstd -d FILE."),
    ZIP: ("a zip archive or a workbook", "Unpack it; a workbook is read by parser: excel."),
    b"7z\xbc\xaf": ("a 7z archive", "Unpack it."),
    b"Rar!": ("a RAR archive", "Unpack it."),
    b"ARROW1": ("an Arrow or Feather file", "Write it as parquet: pandas.read_feather(FILE).to_parquet(...)."),
    b"\xff\xff\xff\xff": ("an Arrow stream", "Write it as parquet: datasets.Dataset.from_file(FILE).to_parquet(...)."),
    b"SQLite format 3": ("a database of SQLite", "Export a table as .csv."),
    b"\x80\x04\x95": ("a pickle of Python", "Save its rows as .csv or .jsonl."),
    b"\x80\x05\x95": ("a pickle of Python", "Save its rows as .csv or .jsonl."),
    b"\x89HDF": ("an HDF5 file", "Save its rows as .csv or .jsonl."),
    b"\x93NUMPY": ("an array of NumPy", "Save its rows as .csv or .jsonl."),
}
"""First bytes of files that are not tables of text -> (what they are, what to do)."""

SAMPLE_BYTES = 1 << 18
TWO_BYTES = {
    "gb18030": "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用",
    "big5": "的一是不了在人有我他這個們中來上大為和國地到以說時要就出會可也你對生能而子那得於著下自之年過發後作裡用",
    "cp932": "のにはをたがでてとしれさいるなもよりまこあうきくらんアイスンルト",
    "cp949": "이다는에의가을를고하지은도로서한어사나기과자인니있정리부수시습전해대일",
}
_RUSSIAN = "оеаинтсрвлкмдпуяыьгбзчхії"
_GREEK = "αοιετσνηυρπκμλςωάίήέόύώγδ"
OTHER_SCRIPTS = (
    ("cp1251", _RUSSIAN), ("koi8_u", _RUSSIAN), ("iso8859_5", _RUSSIAN), ("cp866", _RUSSIAN),
    ("cp1251", "аеиоътнрсвлкдпмязгучбщ"),
    ("cp1253", _GREEK), ("iso8859_7", _GREEK), ("cp1255", "יוהלאתרבמשנכחקדעפסגט"),
    ("cp1256", "اليمونرتبةعدسفهكقحأجشى،"), ("cp874", "านรอก่เง้มยวลดสตทัีะปบคหแิจพชขใไืุู์ผโ"),
)  # fmt: skip
"""Single-byte encoding -> the most frequent letters of a language with letters of its own."""

_POLISH, _CZECH = "ąęłóśćńżź", "áéíóúýčďěňřšťůžľĺŕäô"
LATIN = (
    ("cp1252", "éèàçêôùâîïëüöäßñáíóúåøæãõòìœ¿¡"), ("cp1252", "áðéíóúýþæö"), ("cp1254", "çğıöşüâîû"),
    ("cp1250", _POLISH), ("cp1250", _CZECH), ("cp1250", "áéíóöőúüű"), ("cp1250", "čćđšž"), ("cp1250", "ăâîşţ"),
    ("iso8859_2", _POLISH), ("iso8859_2", _CZECH), ("cp1257", "ąčęėįšųūž"), ("cp1257", "āčēģīķļņšūž"),
    ("mac_roman", "éèàçêôùâîïëüöäßñáíóúåøæãõòìœ¿¡"), ("cp850", "éèàçêôùâîïëüöäßñáíóúåøæãõòì"),
)  # fmt: skip
"""The same for languages with Latin letters, where most words have none of these; the first of equals is taken."""

_SIGNS = "«»“”‘’„‚…–—•°€£§©®™½±²³¹ªº×·№\xa0"
"""Signs that are at the same place in most of these encodings, and tell none."""

_WORD = re.compile(rb"[\x80-\xff]{2,}")

FEWEST = {"gb18030": 0.15, "big5": 0.15, "cp932": 0.15, "cp949": 0.15}
"""Minimum share of the frequent characters among the non-ASCII letters, for an encoding to be accepted."""

FEWEST_FREQUENT = 0.75
"""The same for single-byte encodings, of all non-ASCII characters."""

FEWEST_LETTERS = 3
"""Different characters that must be seen for another encoding than the most common one of a kind of letters."""


CLEARLY = 0.08
"""How much larger the share of frequent characters must be than in a given encoding, for another to be suggested."""

USUAL = 0.9
"""Share of usual characters from which a text is Chinese or Korean, although the most frequent are rare in it."""

MOST_WITHIN = 5
"""Line feeds per carriage return from which the latter are no line ends."""

FEWEST_BYTES = 40
"""Number of non-ASCII bytes from which their frequencies tell an encoding."""


def text_of(data: bytes, path: str, wishes: Wishes) -> tuple[str, Decision]:
    """Return the decoded text of a file, with all line ends replaced by line feeds.

    A few carriage returns among many line feeds are within texts, as in messages copied from the web.

    Raises:
        ConfigError: no encoding fits, or the given one does not.
    """
    encoding, decision = _given(data, path, wishes.encoding) if wishes.encoding else _found(data, path)
    text = data.decode(encoding).removeprefix("\ufeff")
    text = text.replace("\r\n", "\n")
    within = MOST_WITHIN * text.count("\r") < text.count("\n")
    return text.replace("\r", " " if within else "\n"), decision


def _given(data: bytes, path: str, name: str) -> tuple[str, Decision]:
    try:
        encoding = codecs.lookup(name).name
        data.decode(encoding)
    except LookupError:
        raise question(path, "encoding", f"there is no '{name}'.", "Use e.g. utf-8, gb18030, utf-16, cp1252.") from None
    except UnicodeDecodeError as error:
        other = likely(data)
        remedy = f"It is likely {other}: encoding={other}." if other else "Leave it out to have it detected."
        problem = f"is {name}, but byte {error.start + 1:,} of the file is not valid in it."
        raise question(path, "encoding", problem, remedy) from None
    return encoding, Decision("encoding", encoding, "given")


def _found(data: bytes, path: str) -> tuple[str, Decision]:
    for encoding in filter(None, (marked(data), "utf-8")):
        if decodes(data, encoding):
            return encoding, Decision("encoding", encoding.removesuffix("-sig"), "certain", "encoding=...")
    found = likely(data)
    if not found:
        remedy = "Name it: encoding=gb18030, cp1252, utf-16, ... Is it a text file?"
        raise question(path, "encoding", "is neither UTF-8 nor another encoding that can be recognised.", remedy)
    return found, Decision("encoding", found, "likely", "encoding=...")


def decodes(data: bytes, encoding: str) -> bool:
    """Return whether all bytes are valid in an encoding."""
    try:
        data.decode(encoding)
    except (UnicodeDecodeError, LookupError):
        return False
    return True


def likely(data: bytes) -> str:
    """Return the most likely encoding in which all bytes are valid; '' if there is none."""
    if b"\0" not in data:
        best, share = _most_common(data)
        if best and share >= FEWEST[best]:
            return best
        if found := _by_rows(data) or _single_byte(data)[0]:
            return found
    from charset_normalizer import from_bytes

    for match in from_bytes(_sample(data)):
        encoding = WIDER.get(match.encoding, match.encoding)
        if decodes(data, encoding):
            return encoding
    return ""


def better(data: bytes, said: str) -> str:
    """Return the encoding in which the start of a text has frequent characters, unlike in `said`; '' if none.

    All bytes are valid in `said`, which most single-byte encodings are for any text.
    """
    name = codecs.lookup(said).name
    said = WIDER.get(name, name)
    whole = data[: data.rfind(b"\n") + 1] or data
    if sum(byte > 0x7F for byte in whole) < FEWEST_BYTES:
        return ""
    best, share = _most_common(whole)
    if best and best != said and share >= FEWEST[best]:
        own = _common_share(whole, said, TWO_BYTES[said]) if said in TWO_BYTES else 0.0
        return best if own < FEWEST[best] else ""
    if said not in TWO_BYTES and (found := _by_rows(whole)):
        return found
    best, letters = _single_byte(whole)
    if not best or said in TWO_BYTES or whole.decode(best) == whole.decode(said):
        return ""
    tables = OTHER_SCRIPTS if (best, letters) in OTHER_SCRIPTS else LATIN
    own = max(_frequent_share(whole, said, each) for name, each in tables if name == said or each == letters)
    return best if _frequent_share(whole, best, letters) >= own + CLEARLY else ""


def _most_common(data: bytes) -> tuple[str, float]:
    """Return (encoding, share of its frequent characters), the one with the largest share; '' if none is valid."""
    shares = {name: _common_share(data, name, table) for name, table in TWO_BYTES.items() if decodes(data, name)}
    best = max(shares, key=lambda name: shares[name], default="")
    return best, shares.get(best, 0.0)


def _single_byte(data: bytes) -> tuple[str, str]:
    """Return the single-byte encoding in which the most characters are frequent in a language, and these; else ''.

    In other scripts whole words are beyond ASCII; in Latin ones such letters mostly stand alone. Without this, Russian
    in KOI8-R is a text of capital letters with accents.
    """
    sample = _sample(data)
    beyond = sum(byte > 0x7F for byte in sample)
    in_words = sum(map(len, _WORD.findall(sample)))
    if 2 * in_words > beyond and (found := _best(sample, OTHER_SCRIPTS))[0]:
        return found
    return _best(sample, LATIN)


def _best(data: bytes, tables: Sequence[tuple[str, str]]) -> tuple[str, str]:
    """Return the (encoding, letters) with the largest share of frequent characters, if that is large; else ''."""
    best, most = ("", ""), 0.0
    for name, letters in tables:
        share = _frequent_share(data, name, letters) if decodes(data, name) else 0.0
        seen = {*letters, *_SIGNS}.intersection(data.decode(name, "ignore").lower()) if share > most else set()
        if seen and share >= FEWEST_FREQUENT and ((name, letters) == tables[0] or len(seen) >= FEWEST_LETTERS):
            best, most = (name, letters), share
    return best


def _frequent_share(data: bytes, encoding: str, letters: str) -> float:
    """Return the share of frequent letters among all non-ASCII characters, 0 to 1.

    Capitals and signs count a little less, as in most texts they are few; capitals behind a small letter do not count.
    """
    text = _sample(data).decode(encoding, "ignore")
    total = points = 0.0
    for before, each in pairwise(" " + text):
        if each > "\x7f":
            total += 1
            if each in letters:
                points += 1
            elif each in _SIGNS or (each.lower() in letters and not before.islower()):
                points += 0.9
    return points / max(total, 1)


def _by_rows(data: bytes) -> str:
    """Return gb18030 or cp949 if nearly all letters are in the rows of usual characters; '' if they are not.

    GB 2312 has the 3,755 usual Chinese characters in rows B0 to D7, and KS X 1001 all Hangul in rows B0 to C8. So this
    needs no frequent characters, which are rare in lists of keywords. Texts in single-byte encodings hardly ever look
    like that: words of an odd number of letters are not valid, and most of their letters are beyond these rows.
    """
    if not decodes(data, "gb18030"):
        return ""
    letters = [each for each in _sample(data).decode("gb18030", "ignore") if each > "\x7f" and each.isalpha()]
    rows = [each.encode("gb2312", "replace")[0] for each in letters]
    usual = [row for row in rows if 0xB0 <= row <= 0xD7]
    if 2 * len(rows) < FEWEST_BYTES or len(usual) < USUAL * len(rows):
        return ""
    beyond_hangul = sum(row > 0xC8 for row in usual)
    is_korean = beyond_hangul < (1 - USUAL) * len(usual)
    return "cp949" if is_korean and decodes(data, "cp949") else "gb18030"


def _sample(data: bytes) -> bytes:
    return data[: data.rfind(b"\n", 0, SAMPLE_BYTES) + 1] if len(data) > SAMPLE_BYTES else data


def _common_share(data: bytes, encoding: str, common: str) -> float:
    letters = [each for each in _sample(data).decode(encoding, "ignore").lower() if each > "\x7f" and each.isalpha()]
    return sum(each in common for each in letters) / max(len(letters), 1)


def no_text(data: bytes) -> tuple[str, str] | None:
    """Return what a file is and what to do, judged by its first bytes, if it is not text; else None."""
    return next((known for start, known in NO_TEXT.items() if data.startswith(start)), None)
