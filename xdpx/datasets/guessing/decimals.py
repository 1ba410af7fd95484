"""Numbers with a decimal comma, as spreadsheets write them in most of Europe: 3,5 for 3.5."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMBER = re.compile(r"[-+]?\d+(?:,(\d+))?")


def are_decimals(cells: Sequence[str]) -> bool:
    """Return whether cells are numbers, some with a decimal comma; 1,234 might be a thousand, so it is no evidence."""
    found = [_NUMBER.fullmatch(cell.strip()) for cell in cells if cell.strip()]
    digits = [match[1] for match in found if match is not None and match[1]]
    return all(found) and 2 * len(digits) > len(found) and any(len(each) != 3 for each in digits)


def with_point(cell: str) -> str:
    """Return a number with a point in place of the comma."""
    return cell.replace(",", ".")
