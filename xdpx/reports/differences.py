"""Two sets of settings -> the lines that tell them apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def difference_lines(left: Mapping[str, Any], right: Mapping[str, Any]) -> list[str]:
    """Give one line for each key that differs, sorted by key.

    `-- key: value` stands only on the left, `++ key: value` only on the right, `+- key: left -> right` in both.
    """
    return [_line(key, left, right) for key in sorted({*left, *right}) if _differs(key, left, right)]


def _differs(key: str, left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    return key not in left or key not in right or left[key] != right[key]


def _line(key: str, left: Mapping[str, Any], right: Mapping[str, Any]) -> str:
    if key not in right:
        return f"-- {key}: {left[key]!r}"
    if key not in left:
        return f"++ {key}: {right[key]!r}"
    return f"+- {key}: {left[key]!r} -> {right[key]!r}"
