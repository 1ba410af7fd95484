"""Checks of how texts are written: wrongly decoded, lost or invisible characters; markup; mixed alphabets."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xdpx.datasets.examining.sample import SHOWN, Sample
from xdpx.datasets.examining.words import LAST_POINT, pieces, points_of, words_of
from xdpx.datasets.findings.decoding import as_meant
from xdpx.datasets.findings.finding import Code, Example, Finding

FEW_OF_ANOTHER_SCRIPT = 0.05
"""Maximum share of rows in another script for it to be an exception rather than a second language of the data."""

_MARKUP = re.compile(
    r"<(?:/?(?:br|p|div|span|a|b|i|img|li|ul|td|tr|table|script|font|strong|em|h[1-6])\b[^<>]{0,200})/?>"
    r"|&(?:amp|lt|gt|quot|nbsp|apos|hellip|mdash|ndash|rsquo|lsquo|#\d{2,5}|#x[0-9a-fA-F]{2,4});",
    re.IGNORECASE,
)
_ESCAPE = re.compile(
    r"\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|(?<![A-Za-z]:)(?<!\\)\\[nrt](?=\\|[A-Z\s]|$)|\\\"|(?:%[0-9A-F]{2}){2}"
)
_SWALLOWED = re.compile('[\t,;|]"?([^\t,;|\n"]{1,40})"?\r?\n')
_PLACEHOLDERS = frozenset({
    "nan", "null", "none", "n/a", "#n/a", "na", "nil", "undefined", "<na>", "[deleted]", "[removed]", "missing",
    "(null)", "empty", "no text", "无", "空", "暂无", "此用户没有填写评价内容", "-", "--", ".", "?", "todo",
    "tbd", "lorem ipsum",
})  # fmt: skip

LATIN, CYRILLIC, GREEK, HAN, KANA, HANGUL, ARABIC, HEBREW, INDIC, THAI = (1 << index for index in range(10))
_SCRIPTS = {LATIN: "Latin", CYRILLIC: "Cyrillic", GREEK: "Greek", HAN: "Chinese", KANA: "Japanese", HANGUL: "Korean",
            ARABIC: "Arabic", HEBREW: "Hebrew", INDIC: "Indic", THAI: "Thai"}  # fmt: skip
_RANGES = (
    (LATIN, 0x41, 0x5A), (LATIN, 0x61, 0x7A), (LATIN, 0xC0, 0xD6), (LATIN, 0xD8, 0xF6), (LATIN, 0xF8, 0x24F),
    (LATIN, 0x1E00, 0x1EFF), (GREEK, 0x370, 0x3FF), (CYRILLIC, 0x400, 0x52F), (HEBREW, 0x591, 0x5F4),
    (ARABIC, 0x600, 0x6FF), (INDIC, 0x900, 0xDFF), (THAI, 0xE00, 0xE7F), (HANGUL, 0xAC00, 0xD7A3),
    (KANA, 0x3040, 0x30FF), (HAN, 0x3400, 0x4DBF), (HAN, 0x4E00, 0x9FFF), (HAN, 0x20000, 0x31FFF),
)  # fmt: skip

_INVISIBLE = (
    0xAD,
    0x180E,
    *range(0x200B, 0x2010),
    *range(0x202A, 0x202F),
    *range(0x2060, 0x2065),
    *range(0x2066, 0x206A),
    0xFEFF,
)
_JOINERS = {0x200C, 0x200D}
"""Invisible characters that are used in Persian, Indic scripts and emoji, and so are not a fault."""


class _Signs(NamedTuple):
    """Which rows contain some kind of character, and counts of letters and digits; each of shape (N,)."""

    control: NDArray[np.bool_]
    lost: NDArray[np.bool_]
    invisible: NDArray[np.bool_]
    beyond_ascii: NDArray[np.bool_]
    markup: NDArray[np.bool_]
    escape: NDArray[np.bool_]
    letters: NDArray[np.int64]
    digits: NDArray[np.int64]
    scripts: NDArray[np.int64]


def writing(sample: Sample) -> Iterator[Finding]:
    """Yield findings about texts with unusual characters, scripts or lengths."""
    signs = _signs_of(sample.texts)
    yield from _wrongly_decoded(sample, signs)
    for kind in _SINGLE_SIGNS:
        yield from kind.found(sample, signs)
    yield from _forms(sample, signs)
    yield from _by_pattern(sample, "markup", signs.markup, _MARKUP, "markup or entities of HTML",
                           "Remove the tags, and decode entities with Python's html.unescape.")  # fmt: skip
    yield from _by_pattern(sample, "escapes", signs.escape, _ESCAPE, "escapes such as \\u00e9 or %20 as text",
                           "Decode them where the file is made: json.loads, or urllib.parse.unquote.")  # fmt: skip
    yield from _mixed_words(sample, signs)
    yield from _other_scripts(sample, signs)
    yield from _nothing_to_read(sample, signs)
    yield from _giants(sample)


def script_bits() -> NDArray[np.int64]:
    """Return the script of each code point as one bit; 0 if it belongs to none or to several."""
    found = np.zeros(LAST_POINT + 1, np.int64)
    for script, first, last in _RANGES:
        found[first : last + 1] = script
    return found


def _signs_of(texts: Sequence[str]) -> _Signs:
    scripts_of = script_bits()
    joiners = np.isin(np.array(_INVISIBLE), list(_JOINERS))
    invisible = np.array(_INVISIBLE)[~joiners]
    found = []
    for _, piece in pieces(texts):
        points = points_of(piece)
        values, starts = points.values_P, points.offsets[:-1]
        script = scripts_of[np.minimum(values, LAST_POINT)]
        digit = (values >= 0x30) & (values <= 0x39)
        control = (values < 0x20) & ~np.isin(values, (0x9, 0xA, 0xD)) | (values >= 0x7F) & (values < 0xA0)
        kinds = (control, values == 0xFFFD, np.isin(values, invisible), values > 0x7F,
                 (values == ord("<")) | (values == ord("&")), (values == ord("\\")) | (values == ord("%")))  # fmt: skip
        flags = [np.logical_or.reduceat(kind, starts) for kind in kinds]
        counts = [np.add.reduceat(kind.astype(np.int64), starts) for kind in (script > 0, digit)]
        found.append((*flags, *counts, _main_script(script, starts)))
    if not found:
        no, none = np.zeros(0, np.bool_), np.zeros(0, np.int64)
        return _Signs(no, no, no, no, no, no, none, none, none)
    return _Signs(*(np.concatenate(columns) for columns in zip(*found, strict=True)))


def _main_script(script_P: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the most frequent script of each text, 0 for none; Chinese characters and kana count together."""
    eastern = HAN | KANA
    groups = [eastern if script in {HAN, KANA} else script for script in _SCRIPTS if script != KANA]
    counts = np.stack([np.add.reduceat((script_P & group > 0).astype(np.int32), starts) for group in groups])
    best = counts.argmax(axis=0)
    names = np.array([HAN if group == eastern else group for group in groups])
    return np.where(counts.max(axis=0) > 0, names[best], 0)


@dataclass(frozen=True)
class _SingleSign:
    """A kind of character that no text should contain."""

    code: Code
    rows: Callable[[_Signs], NDArray[np.bool_]]
    is_one: Callable[[str], bool]
    what: str
    remedy: str

    def found(self, sample: Sample, signs: _Signs) -> Iterator[Finding]:
        rows = np.flatnonzero(self.rows(signs))
        if len(rows):
            examples = [self._example(sample, int(row)) for row in rows[:SHOWN]]
            yield sample.finding(self.code, rows, f"{{rows}} hold {self.what}.", self.remedy, examples=examples)

    def _example(self, sample: Sample, row: int) -> Example:
        text = sample.texts[row]
        place = next((index for index, sign in enumerate(text) if self.is_one(sign)), 0)
        return sample.example(row, f"U+{ord(text[place]):04X} behind {place:,} characters", around=place)


_SINGLE_SIGNS = (
    _SingleSign(
        "control_characters", lambda signs: signs.control,
        lambda sign: (unicodedata.category(sign) == "Cc") and sign not in "\t\n\r",
        "control characters", "Remove them; U+0080 to U+009F mean that the file is cp1252: set encoding.",
    ),
    _SingleSign(
        "lost_characters", lambda signs: signs.lost, lambda sign: sign == "\ufffd",
        "U+FFFD, which stands where a byte could not be decoded",
        "Export the file again from its source, in the right encoding.",
    ),
    _SingleSign(
        "invisible_characters", lambda signs: signs.invisible,
        lambda sign: ord(sign) in _INVISIBLE and ord(sign) not in _JOINERS,
        "characters that cannot be seen, such as U+200B or a byte order mark", "Remove them from the texts.",
    ),
)  # fmt: skip


def _wrongly_decoded(sample: Sample, signs: _Signs) -> Iterator[Finding]:
    candidates = np.flatnonzero(signs.beyond_ascii).tolist()
    mended = {row: better for row in candidates if (better := as_meant(sample.texts[row])) is not None}
    if not mended:
        return
    rows = np.array(list(mended))
    examples = [
        sample.example(row, f"means {mended[row]!r:.80}" if mended[row] else "cannot be fixed")
        for row in list(mended)[:SHOWN]
    ]
    problem = "{rows} were decoded with another encoding than they were written in."
    remedy = "Set encoding, or fix the file: text.encode('cp1252').decode() in Python undoes the usual mistake."
    yield sample.finding("encoding", rows, problem, remedy, examples=examples)


def _forms(sample: Sample, signs: _Signs) -> Iterator[Finding]:
    """Yield a finding about texts in NFD, with accents as separate characters."""
    candidates = np.flatnonzero(signs.beyond_ascii).tolist()
    apart = [row for row in candidates if not unicodedata.is_normalized("NFC", sample.texts[row])]
    apart = [row for row in apart if any(unicodedata.combining(sign) for sign in sample.texts[row])]
    if apart:
        problem = "{rows} have accents as separate characters (Unicode NFD) instead of one character (NFC)."
        remedy = "Normalise all texts: unicodedata.normalize('NFC', text)."
        yield sample.finding("unicode_forms", np.array(apart), problem, remedy)


def _by_pattern(
    sample: Sample, code: Code, candidates: NDArray[np.bool_], pattern: re.Pattern[str], what: str, remedy: str
) -> Iterator[Finding]:
    places = {
        row: match
        for row in np.flatnonzero(candidates).tolist()
        if (match := pattern.search(sample.texts[row])) is not None
    }
    if places:
        examples = [sample.example(row, f"holds {match[0]!r:.60}", around=match.start())
                    for row, match in list(places.items())[:SHOWN]]  # fmt: skip
        yield sample.finding(code, np.array(list(places)), f"{{rows}} hold {what}.", remedy, examples=examples)


def _mixed_words(sample: Sample, signs: _Signs) -> Iterator[Finding]:
    """Yield a finding about words with letters of several similar alphabets: Latin, Cyrillic, Greek."""
    scripts_of = script_bits()
    candidates = np.flatnonzero(signs.beyond_ascii)
    texts = [sample.texts[row] for row in candidates.tolist()]
    words = words_of(texts)
    rows: dict[int, str] = {}
    lowered = [text.lower() for text in texts]
    look_alike = LATIN | CYRILLIC | GREEK
    for first, piece in pieces(lowered):
        points = points_of(piece)
        mine = (words.rows_W >= first) & (words.rows_W < first + len(piece))
        if not mine.any():
            continue
        starts = words.starts_W[mine] + points.offsets[words.rows_W[mine] - first]
        script = scripts_of[np.minimum(points.values_P, LAST_POINT)] & look_alike
        bounds = np.stack([starts, starts + (words.ends_W - words.starts_W)[mine]], axis=1).ravel()
        together = np.bitwise_or.reduceat(np.append(script, 0), bounds)[::2]
        for place in np.flatnonzero((together & (together - 1)) > 0).tolist():
            index = int(np.flatnonzero(mine)[place])
            row = int(words.rows_W[index])
            rows.setdefault(int(candidates[row]), lowered[row][words.starts_W[index] : words.ends_W[index]])
    if rows:
        examples = [sample.example(row, f"'{word}' mixes alphabets") for row, word in list(rows.items())[:SHOWN]]
        problem = "{rows} hold words with letters of two alphabets that look alike."
        remedy = "Write each word in one alphabet; spam does it to get past filters."
        yield sample.finding("mixed_scripts", np.array(list(rows)), problem, remedy, examples=examples)


def _other_scripts(sample: Sample, signs: _Signs) -> Iterator[Finding]:
    """Yield a finding about rows in another script than nearly all others."""
    found, times = np.unique(signs.scripts[signs.scripts > 0], return_counts=True)
    if len(found) < 2:
        return
    main = int(found[times.argmax()])
    rows = np.flatnonzero((signs.scripts > 0) & (signs.scripts != main) & (signs.letters >= 8))
    if not 0 < len(rows) <= FEW_OF_ANOTHER_SCRIPT * len(sample):
        return
    named = sorted({_SCRIPTS[int(script)] for script in signs.scripts[rows]})
    problem = f"{{rows}} are written in {' or '.join(named)} letters, where others are in {_SCRIPTS[main]} ones."
    yield sample.finding("other_script", rows, problem, "Keep them only if such texts occur in use.", severity="note")


def _nothing_to_read(sample: Sample, signs: _Signs) -> Iterator[Finding]:
    for name, texts in sample.fields.items():
        folded = {text: text.strip().lower() for text in set(texts) if len(text) < 40}
        rows = np.array([row for row, text in enumerate(texts) if folded.get(text, text) in _PLACEHOLDERS], np.int64)
        if len(rows):
            said = sorted({folded[texts[row]] for row in rows.tolist()})[:SHOWN]
            problem = f"the {name} of {{rows}} is a marker for a missing text: {', '.join(map(repr, said))}."
            yield sample.finding("placeholder", rows, problem, "Drop these rows, or fill them from the source.")
    bare = np.array([bool(text.strip()) for text in sample.texts], np.bool_) & (signs.letters == 0)
    rows = np.flatnonzero(bare & np.array([not any(map(str.isalpha, text)) for text in sample.texts], np.bool_))
    if len(rows):
        yield sample.finding("no_letters", rows, "{rows} hold digits and signs only.", "Is it the right column?")


def _giants(sample: Sample) -> Iterator[Finding]:
    """Yield findings about texts far longer than nearly all others, and about rows that are part of a text."""
    lengths = np.fromiter(map(len, sample.texts), np.int64, len(sample))
    if len(lengths) < 20:
        return
    usual = float(np.quantile(lengths, 0.95))
    rows = np.flatnonzero(lengths > max(1000.0, 10 * usual))
    known = {label.strip().lower() for label in sample.classes[0]}
    swallowed = {}
    for row in np.flatnonzero(lengths > 2 * max(usual / 2, 20.0)).tolist():
        inner = [match[1] for texts in sample.fields.values() for match in _SWALLOWED.finditer(texts[row])]
        count = sum(label.strip().lower() in known for label in inner)
        if count:
            swallowed[row] = count
    if swallowed:
        problem = "{rows} contain other rows, labels included: a quote was not closed, or the delimiter is wrong."
        remedy = "Close the quotes, or read them as text: quotechar: null."
        examples = [sample.example(row, f"holds {count:,} more rows") for row, count in list(swallowed.items())[:SHOWN]]
        yield sample.finding(
            "swallowed_rows", np.array(list(swallowed)), problem, remedy, examples=examples, severity="warning"
        )
    rows = np.setdiff1d(rows, np.array(list(swallowed), np.int64))
    if len(rows):
        examples = [sample.example(int(row), f"{lengths[row]:,} characters") for row in rows[:SHOWN]]
        problem = f"{{rows}} are more than ten times as long as 95 % of them ({usual:,.0f} characters)."
        yield sample.finding("giant_text", rows, problem, "Check that each is one text.", examples=examples)
