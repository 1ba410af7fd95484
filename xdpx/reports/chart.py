"""One figure: curves, the best point, epoch lines and a horizontal level line, in the same style everywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator

from xdpx.reports.curves import Curve, Stroke, y_limits
from xdpx.reports.fonts import families
from xdpx.reports.run_logs import Floats
from xdpx.reports.tables import text_width
from xdpx.utils.commit import write_bytes

COLOURS = ("#2166ac", "#e08214", "#7b3294", "#1b9e9e", "#c51b7d", "#8c6d31", "#4d4d4d", "#5aae61", "#d6604d", "#74add1")
BEST, EPOCH, LEVEL, INK, QUIET = "#1a9641", "#d7191c", "#555555", "#222222", "#777777"
MOST_EPOCH_LINES = 60


@dataclass(frozen=True)
class Chart:
    """The contents of one figure."""

    title: str
    x_label: str
    curves: Sequence[Curve]
    best: tuple[float, float] | None = None
    best_label: str = ""
    epochs: Floats = field(default_factory=lambda: np.empty(0))
    level: tuple[float, str] | None = None
    y_label: str = ""
    """The unit, if there is one."""
    source: str = ""
    """The run that the figure belongs to, shown in its upper right corner."""
    strokes: Mapping[str, Stroke] = field(default_factory=dict)
    """Legend label -> line style, if more than one line style is used."""


def render(chart: Chart, figure_format: str) -> bytes:
    """Draw a chart and return the bytes of its file.

    Figures are made without pyplot, so no state is kept between calls, and any thread may draw.
    """
    figure = Figure(figsize=(8.4, 4.8), dpi=110)
    FigureCanvasAgg(figure)
    rows = _legend(figure, chart)
    axes = figure.add_axes((0.085, 0.115, 0.89, 0.785 - 0.043 * rows))
    _frame(axes, chart)
    limits = _limits(chart)
    if limits:
        axes.set_ylim(*limits)
    epochs = chart.epochs[:: len(chart.epochs) // MOST_EPOCH_LINES + 1]
    for place in epochs:
        axes.axvline(place, color=EPOCH, linewidth=0.9, alpha=0.45 if len(epochs) <= 20 else 0.22, zorder=1)
    for curve in chart.curves:
        _line(axes, curve)
    if chart.level and _is_within(chart.level[0], limits):
        axes.axhline(chart.level[0], color=LEVEL, linestyle=(0, (4, 2)), linewidth=1.2)
    if chart.best:
        axes.plot(*chart.best, "o", color=BEST, markersize=9, markeredgecolor="white", markeredgewidth=1.5, zorder=9)
    _outliers(axes, chart, limits)
    return file_of(figure, figure_format)


def _frame(axes: Axes, chart: Chart) -> None:
    axes.figure.text(0.085, 0.945, chart.title, fontsize=14, fontweight="bold", color=INK, family=list(families()))
    axes.figure.text(0.975, 0.945, chart.source, fontsize=9, color=QUIET, ha="right", family=list(families()))
    axes.set_xlabel(chart.x_label, fontsize=11, color=INK)
    axes.set_ylabel(chart.y_label, fontsize=11, color=INK)
    axes.tick_params(labelsize=10.5, colors=INK, length=3)
    axes.grid(visible=True, color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#999999")
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_number(value)))
    axes.margins(x=0.015)


def short_number(value: float) -> str:
    """Return a position on the x axis as a short text: 950, 1.5k, 20k, 1.25M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            unit = 1e3 if letter == "k" else size
            return f"{value / unit:.4g}{letter}"
    return f"{value:.5g}"


def _limits(chart: Chart) -> tuple[float, float] | None:
    limits = y_limits([curve.y for curve in chart.curves])
    if limits is None:
        return None
    low, high = limits
    marks = [chart.best[1]] if chart.best else []
    if chart.level and low - 2 * (high - low) <= chart.level[0] <= high + 2 * (high - low):
        marks.append(chart.level[0])
    margin = 0.04 * (high - low)
    return min([low, *(mark - margin for mark in marks)]), max([high, *(mark + margin for mark in marks)])


def _is_within(value: float, limits: tuple[float, float] | None) -> bool:
    return limits is not None and limits[0] <= value <= limits[1]


def _line(axes: Axes, curve: Curve) -> None:
    dots = (curve.dots and len(curve.x) <= 40) or len(curve.x) == 1  # a line through a single point would be invisible
    axes.plot(curve.x, curve.y, **_style(curve), marker="." if dots else None)


def _style(curve: Curve) -> dict[str, Any]:
    return {
        "color": _colour(curve.colour),
        "linestyle": curve.stroke.value,
        "linewidth": 0.8 if curve.faint else 2.0 if curve.stroke is Stroke.SOLID else 1.5,
        "alpha": 0.35 if curve.faint else 1.0,
        "zorder": 2 if curve.faint else 4 if curve.colour else 5,
    }


def _outliers(axes: Axes, chart: Chart, limits: tuple[float, float] | None) -> None:
    if limits is None:
        axes.text(0.5, 0.5, "no values yet", transform=axes.transAxes, ha="center", color=QUIET, fontsize=12)
        return
    beyond = sum(int(((curve.y < limits[0]) | (curve.y > limits[1])).sum()) for curve in chart.curves)
    if beyond:
        note = f"{beyond} outlying point{'s' if beyond > 1 else ''} beyond the axis"
        axes.figure.text(0.975, 0.015, note, ha="right", fontsize=9, color=QUIET)


def _legend(figure: Figure, chart: Chart) -> int:
    """Write the legend above the axes, and return the number of rows that it takes."""
    entries = _curve_entries(chart)
    if chart.best:
        entries[chart.best_label] = Line2D([], [], linestyle="none", marker="o", color=BEST, markersize=8, mec="white")
    if chart.level:
        beyond = "" if _is_within(chart.level[0], _limits(chart)) else " (beyond the axis)"
        entries[f"{chart.level[1]}{beyond}"] = Line2D([], [], color=LEVEL, linestyle=(0, (4, 2)), linewidth=1.2)
    if len(chart.epochs):
        entries["epoch"] = Line2D([], [], color=EPOCH, linewidth=0.9, alpha=0.6)
    columns = _legend_columns([text_width(label) for label in entries])
    if entries:
        figure.legend(
            list(entries.values()),
            list(entries),
            loc="upper left",
            bbox_to_anchor=(0.075, 0.935),
            ncols=columns,
            frameon=False,
            prop={"family": list(families()), "size": 9.5},
            handlelength=2.2,
            columnspacing=1.4,
            borderaxespad=0,
        )
    return -(-len(entries) // columns)


def _legend_columns(letters: Sequence[int]) -> int:
    """Return how many entries fit side by side: a row holds 108 characters; a line sample and its gaps take nine."""
    if sum(count + 9 for count in letters) <= 108:
        return max(1, len(letters))
    return max(1, 108 // (max(letters) + 9))


def _curve_entries(chart: Chart) -> dict[str, Line2D]:
    """Return one legend entry per colour and one per line style, so that four runs do not need sixteen entries."""
    seen = [curve for curve in chart.curves if not curve.faint]
    colours = {curve.label: curve.colour for curve in seen if curve.label}
    entries = {label: Line2D([], [], color=_colour(number), linewidth=2.0) for label, number in colours.items()}
    colour = QUIET if entries or not seen else _colour(seen[0].colour)
    used = {curve.stroke for curve in seen}
    for label, stroke in ((label, stroke) for label, stroke in chart.strokes.items() if stroke in used):
        entries[label] = Line2D([], [], color=colour, linestyle=stroke.value, linewidth=1.7)
    return entries


def _colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def file_of(figure: Figure, figure_format: str, *, dots_per_inch: float | None = None) -> bytes:
    """Return a figure as the bytes of an image file, by default with its own resolution."""
    buffer = BytesIO()
    options: dict[str, Any] = {"pil_kwargs": {"compress_level": 3}} if figure_format == "png" else {}
    figure.savefig(buffer, format=figure_format, dpi="figure" if dots_per_inch is None else dots_per_inch, **options)
    return buffer.getvalue()


def write_figure(figure: Figure, path: str, *, dots_per_inch: float = 150) -> None:
    """Write a figure to a local or remote path, in the format of its suffix."""
    write_bytes(path, file_of(figure, path.rpartition(".")[2], dots_per_inch=dots_per_inch))
