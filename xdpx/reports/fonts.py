"""Which installed fonts can draw a text, and what to write if none can."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import PurePath

from matplotlib.font_manager import FontProperties, findfont, findSystemFonts, fontManager, get_font

LATIN = "DejaVu Sans"
WIDE = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Noto Sans CJK JP",
    "Source Han Sans SC",
    "Source Han Sans CN",
    "WenQuanYi Zen Hei",
    "WenQuanYi Micro Hei",
    "Microsoft YaHei",
    "SimHei",
    "PingFang SC",
    "PingFang HK",
    "Heiti TC",
    "Hiragino Sans GB",
    "Arial Unicode MS",
    "Droid Sans Fallback",
    "Unifont",
)
"""Fonts with Chinese characters on the usual systems, best looking first."""
FILES = (
    "cjk", "notosanssc", "sourcehan", "wqy", "msyh", "simhei", "pingfang", "heiti", "hiragino", "arialunicode",
    "droidsansfallback", "unifont",
)  # fmt: skip
"""Parts of the file names of these fonts."""


@cache
def families() -> tuple[str, ...]:
    """Return the installed font families to draw with; for each character, the first one that has it is used."""
    installed = {font.name for font in fontManager.ttflist}
    if not installed & set(WIDE):
        installed |= _installed_since()
    return (LATIN, *(name for name in WIDE if name in installed))


def _installed_since() -> set[str]:
    """Add fonts installed since matplotlib cached its list, and return the names of all known fonts."""
    known = {font.fname for font in fontManager.ttflist}
    for path in findSystemFonts():
        stem = "".join(letter for letter in PurePath(path).stem.lower() if letter.isalnum())
        if path not in known and any(part in stem for part in FILES):
            with suppress(OSError, RuntimeError):  # a font that FreeType cannot read is of no use
                fontManager.addfont(path)
    return {font.name for font in fontManager.ttflist}


@cache
def _drawable() -> frozenset[int]:
    fonts = (get_font(findfont(FontProperties(family=name))) for name in families())
    return frozenset(code for font in fonts for code in font.get_charmap())


def can_draw(text: str) -> bool:
    """Return whether the installed fonts have every character of `text`."""
    return all(ord(letter) in _drawable() for letter in text)


def drawable_label(candidates: Iterable[str], *, otherwise: str) -> str:
    """Return the first candidate that can be drawn, else `otherwise`, shortened to at most 40 characters."""
    chosen = next((text for text in candidates if text and can_draw(text)), otherwise)
    chosen = chosen if len(chosen) <= 40 else f"{chosen[:18]} … {chosen[-19:]}"
    return chosen.replace("$", r"\$")
