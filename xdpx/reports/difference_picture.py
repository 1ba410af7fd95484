"""Differences of scores with their intervals, as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from xdpx.reports.chart import BEST, INK, LEVEL, QUIET
from xdpx.reports.fonts import drawable_label, families


def difference_picture(told: Mapping[str, Any], figure_format: str) -> bytes:
    """Return a picture of what `x-script compare_runs` found: a line for each pair, or of one pair for each metric.

    Args:
        told: what it prints as JSON.
        figure_format: png, svg, pdf or another that matplotlib writes.
    """
    comparisons, deciding = told["comparisons"], told["metric"]
    if len(comparisons) == 1:
        pair = comparisons[0]
        lines = [(name, each, name == deciding and pair["more_than_chance"]) for name, each in pair["metrics"].items()]
        title = f"{pair['second']} less {pair['first']}"
    else:
        lines = [(f"{pair['second']} less {pair['first']}", pair["metrics"][deciding], pair["more_than_chance"])
                 for pair in comparisons]  # fmt: skip
        title = f"{deciding}: each less each"
    figure = Figure(figsize=(8.4, 1.6 + 0.42 * len(lines)), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.axvline(0.0, color=LEVEL, linewidth=1.0, linestyle=(0, (4, 2)))
    names = []
    for place, (name, each, certain) in enumerate(lines):
        colour = BEST if certain else QUIET
        axes.plot([each["low"], each["high"]], [place, place], color=colour, linewidth=2.2, solid_capstyle="round")
        axes.plot([each["difference"]], [place], marker="o", color=colour, markersize=7, mec="white")
        names.append(drawable_label([name], otherwise=f"comparison {place + 1}"))
    axes.set_yticks(range(len(lines)), names, family=list(families()), fontsize=10)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.tick_params(colors=INK, length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_xlabel("difference with its 95 % interval; green: more than chance", fontsize=10, color=INK)
    figure.suptitle(drawable_label([title], otherwise="differences"), fontsize=11.5, color=INK, family=list(families()))
    buffer = BytesIO()
    figure.savefig(buffer, format=figure_format)
    return buffer.getvalue()
