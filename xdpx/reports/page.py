"""A page of results: sections of tables, pictures and texts -> one HTML file that needs nothing else.

No script, no font and no picture is fetched, so it opens from a disk, in a mail, behind a wall. Every text is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from matplotlib.ticker import MaxNLocator

Interval = Sequence[float] | None


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes:
        text: what it says.
        number: whether it is one, and stands to the right.
        share: draws a bar of so much of the cell, in [0, 1].
        interval: ends of its 95 % interval, drawn over the bar and written behind the text.
        heat: how strongly the cell is coloured, in [0, 1].
        good: whether by the colour of what is right.
        title: is shown while the pointer is over it.
    """

    text: str
    number: bool = False
    share: float | None = None
    interval: tuple[float, float] | None = None
    heat: float | None = None
    good: bool = False
    title: str = ""

    @property
    def place(self) -> str:
        """Where the text stands in its column, which its heading shares: `num` to the right, `mid`, or the left."""
        return "mid" if self.heat is not None else "num" if self.number and self.share is None else ""


@dataclass(frozen=True)
class Table:
    """Rows of cells below the names of their columns; the first column is a heading of its row."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    kind: str = "table"


@dataclass(frozen=True)
class Card:
    """One text with what is to be said of it: a worst error.

    Attributes:
        place: where the text stands.
        texts: the text, or both of a pair.
        said: (name, value) to be read at once, such as what was wanted and what was predicted.
    """

    place: str
    texts: Sequence[str]
    said: Sequence[tuple[str, str]]
    kind: str = "card"


@dataclass(frozen=True)
class Scatter:
    """Dots (x, y) over axes of the same scale, with the line on which both are equal."""

    dots: Sequence[tuple[float, float]]
    x_label: str
    y_label: str
    caption: str = ""
    kind: str = "scatter"

    @property
    def span(self) -> tuple[float, float]:
        """Ends of both axes."""
        finite = [value for dot in self.dots for value in dot if math.isfinite(value)] or [0.0, 1.0]
        low, high = min(finite), max(finite)
        margin = 0.05 * (high - low) or 0.5
        return low - margin, high + margin

    @property
    def places(self) -> list[tuple[float, float]]:
        """Finite dots in percent of the picture, y from above."""
        return [(self.percent(x), 100 - self.percent(y)) for x, y in self.dots if math.isfinite(x) and math.isfinite(y)]

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """(percent, text) of the marks of an axis."""
        low, high = self.span
        values = [float(value) for value in MaxNLocator(5).tick_values(low, high) if low <= value <= high]
        return [(self.percent(value), f"{value:.4g}") for value in values]

    def percent(self, value: float) -> float:
        """Return where a value lies, in percent of the axis."""
        low, high = self.span
        return round(100 * (value - low) / (high - low), 2)


@dataclass(frozen=True)
class Note:
    """A paragraph."""

    text: str
    kind: str = "note"


Part = Table | Card | Scatter | Note


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it, perhaps with sections of its own."""

    title: str
    parts: Sequence[Part] = ()
    sections: Sequence[Section] = field(default_factory=tuple)


def render(title: str, facts: Mapping[str, str], sections: Sequence[Section]) -> str:
    """Return a page as HTML.

    Args:
        title: its heading.
        facts: name -> value, shown at the top: which run, which checkpoint, when.
        sections: what stands below, in this order.
    """
    return _template().render(title=title, facts=facts, sections=sections)


def number(value: object, digits: int = 4) -> str:
    """Write a number for a page: so many significant digits; NaN and infinities in words; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    return f"{value:.{digits}g}"


def cell(value: object) -> Cell:
    """Return a cell that holds a value; numbers stand to the right."""
    return Cell(number(value), number=isinstance(value, int | float))


def share_cell(share: float, interval: Interval = None) -> Cell:
    """Return a cell with a share, a bar and its 95 % interval."""
    if not math.isfinite(share):
        return Cell(number(share), number=True)
    ends = (interval[0], interval[1]) if interval is not None and all(map(math.isfinite, interval)) else None
    title = f"95 % interval {ends[0]:.3f} to {ends[1]:.3f}" if ends else ""
    return Cell(f"{share:.3f}", number=True, share=min(max(share, 0.0), 1.0), interval=ends, title=title)


@cache
def _template() -> Template:
    loader = PackageLoader("xdpx", "reports")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.lstrip_blocks = True
    return environment.get_template("page.html.j2")
