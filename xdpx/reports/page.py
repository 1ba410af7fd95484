"""A page of results: sections of tables, pictures and texts, rendered as one self-contained HTML file.

It fetches no script, font or picture, so it opens from a disk, in an e-mail, or offline. Every text is escaped.
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
        text: the content.
        number: whether the content is a number, which is aligned to the right.
        share: length of a bar as a share of the cell, in [0, 1].
        interval: ends of its 95 % interval, drawn over the bar and written after the text.
        heat: intensity of the cell's colour, in [0, 1].
        good: use the colour for correct results.
        title: tooltip.
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
        """The alignment of the text, shared with the heading of its column: `num` (right), `mid` or '' (left)."""
        return "mid" if self.heat is not None else "num" if self.number and self.share is None else ""


@dataclass(frozen=True)
class Table:
    """Rows of cells below the names of their columns; the first cell of a row is its heading."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    kind: str = "table"


@dataclass(frozen=True)
class Card:
    """One text with facts about it, e.g. one of the worst errors.

    Attributes:
        place: where the text is from.
        texts: the text, or both texts of a pair.
        said: (name, value) of facts shown with it, such as the true and the predicted class.
    """

    place: str
    texts: Sequence[str]
    said: Sequence[tuple[str, str]]
    kind: str = "card"


@dataclass(frozen=True)
class Scatter:
    """A scatter plot: dots (x, y) over axes of the same scale, with the line x = y."""

    dots: Sequence[tuple[float, float]]
    x_label: str
    y_label: str
    caption: str = ""
    kind: str = "scatter"

    @property
    def span(self) -> tuple[float, float]:
        """The limits of both axes."""
        finite = [value for dot in self.dots for value in dot if math.isfinite(value)] or [0.0, 1.0]
        low, high = min(finite), max(finite)
        margin = 0.05 * (high - low) or 0.5
        return low - margin, high + margin

    @property
    def places(self) -> list[tuple[float, float]]:
        """The finite dots in percent of the picture, y measured from the top."""
        return [(self.percent(x), 100 - self.percent(y)) for x, y in self.dots if math.isfinite(x) and math.isfinite(y)]

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """(percent, text) of the ticks of an axis."""
        low, high = self.span
        values = [float(value) for value in MaxNLocator(5).tick_values(low, high) if low <= value <= high]
        return [(self.percent(value), f"{value:.4g}") for value in values]

    def percent(self, value: float) -> float:
        """Return the position of a value in percent of the axis."""
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
    """A heading with its content and, optionally, subsections."""

    title: str
    parts: Sequence[Part] = ()
    sections: Sequence[Section] = field(default_factory=tuple)


def render(title: str, facts: Mapping[str, str], sections: Sequence[Section]) -> str:
    """Return a page as HTML.

    Args:
        title: heading of the page.
        facts: name -> value, shown at the top: which run, which checkpoint, when.
        sections: content of the page, in this order.
    """
    return _template().render(title=title, facts=facts, sections=sections)


def number(value: object, digits: int = 4) -> str:
    """Format a number: integers with separators, floats with `digits` significant digits; '' for None."""
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
    """Return a cell with a value; numbers are aligned to the right."""
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
