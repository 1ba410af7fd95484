"""Guess why a value has the wrong type: quotes, a comment or comma read as text, a number that hjson reads as text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from xdpx.config.faults import shortened
from xdpx.config.source_text import plain_thousands

_WORDS = {"true": "true", "yes": "true", "on": "true", "false": "false", "no": "false", "off": "false"}
IN_QUOTES = "put it in quotes, "
_NULLS = frozenset({"none", "null", "nil", "~"})


def shown(value: object) -> str:
    """Return a value as written in a config, truncated to 60 characters, for messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return repr(shortened(value))
    if isinstance(value, list | tuple):
        text = f"[{', '.join(shown(item) for item in value)}]"
    elif isinstance(value, dict):
        text = f"{{{', '.join(f'{key}: {shown(item)}' for key, item in value.items())}}}"
    else:
        text = repr(value)
    return shortened(text)


def hint(value: object, wanted: str) -> str:
    """Return a guess why `value` is not `wanted` (a description such as `an integer`), to append to it; may be ''."""
    number = "integer" in wanted or "number" in wanted
    if isinstance(value, bool) and number:
        return ", not a truth value"
    if isinstance(value, float) and "integer" in wanted and value.is_integer():
        return f": write {int(value)}"
    if isinstance(value, int | float) and wanted in {"text", "text or null"}:
        return f": {IN_QUOTES}'{shown(value)}'"
    if isinstance(value, int) and wanted == "true or false":
        return f": write {'true' if value else 'false'}" if value in {0, 1} else ""
    if value is None:
        return ", or remove the key to get its default"
    if isinstance(value, list) and not wanted.startswith("a list"):
        return ". For several runs, put the values in a loop: __parent__: [[{...}, {...}]]"
    return _hint_for_text(value, wanted, number=number) if isinstance(value, str) else ""


def _hint_for_text(value: str, wanted: str, *, number: bool) -> str:
    written = value.strip()
    swallowed = swallowed_part(written)
    if swallowed:
        return f". {swallowed}"
    # Full-width digits and letters become ASCII, as do the minus sign and the dash that editors put for it.
    text = unicodedata.normalize("NFKC", written).translate({0x2212: "-", 0x2013: "-"})
    if wanted.startswith("a list") and not re.search(r"[\[\](){}'\"]", text) and text:
        parts = text.split()
        parts = parts if all(map(_number_in, parts)) else text.split(",")
        return f": write [{', '.join(part.strip() for part in parts)}]"
    if wanted.startswith("a mapping") and not re.search(r"[\[\](){}'\"]", text) and text:
        key, colon, inner = text.partition(":")
        return f": write {{{key.strip()}: {inner.strip() if colon and inner.strip() else '...'}}}"
    meant = _number_in(text) if number else ""
    if number and (plain := plain_thousands(text)):
        return f": write {plain}"
    if number and re.fullmatch(r"[+-]?\d+,\d+", text):
        return f": write a decimal point, {text.replace(',', '.')}"
    if meant and ("number" in wanted or float(meant).is_integer()):
        unquoted = meant == written and meant.isascii()
        return f": write {meant} without quotes" if unquoted else f": write {_in_ascii(meant)}"
    if "true" in wanted and text.lower() in _WORDS:
        return f": write {_WORDS[text.lower()]}{' without quotes' if written in {'true', 'false'} else ''}"
    if "null" in wanted and text.lower() in _NULLS:
        return f": write null{' without quotes' if written == 'null' else ''}"
    if text.startswith("@{"):
        return ". Relative numbers @{...} are not allowed for this key"
    return ""


def swallowed_part(text: str) -> str:
    """Return a hint if unquoted hjson text includes a comment, a comma with the next key, or a bracket; else ''."""
    comment = re.search(r"\s(#|//|/\*)", text)
    if comment:
        return (
            f"The comment after '{text[: comment.start()]}' was read as part of the text: put it on a line of its own"
        )
    if re.search(r",\s*['\"]?\w+['\"]?\s*:", text):
        return "Unquoted text runs to the end of the line: put each key on a line of its own"
    if re.search(r"[,}\]]$", text) and not re.search(r"[{\[]", text):
        return f"Unquoted text runs to the end of the line: remove the '{text[-1]}', or quote the text"
    return ""


def _in_ascii(number: str) -> str:
    """Return a number with decimal digits of any script as 0 to 9."""
    return "".join(str(unicodedata.digit(sign)) if sign.isdecimal() else sign for sign in number)


def listed(text: str, known: Iterable[str]) -> str:
    """Return how to write names with commas between them as a list; '' if they are not all known."""
    parts = [part.strip() for part in text.split(",")]
    return f"Write a list: [{', '.join(parts)}]." if len(parts) > 1 and set(parts) <= set(known) else ""


def _number_in(text: str) -> str:
    """Return the number that a text seems to mean, in hjson syntax; '' if it is none."""
    plain = text.replace("_", "") if re.fullmatch(r"[+-]?\d[\d_]*(\.\d+)?", text) else text
    try:
        value = float(plain)
    except ValueError:
        return ""
    if value != value or value in {float("inf"), float("-inf")}:
        return ""
    sign, digits = ("-", plain[1:]) if plain.startswith("-") else ("", plain.removeprefix("+"))
    digits = re.sub(r"^0+(?=\d)", "", digits)
    digits = f"0{digits}" if digits.startswith(".") else digits
    return sign + re.sub(r"\.(?=$|e|E)", ".0", digits)
