"""Figures of evaluations: confusion matrices, differences between runs, and calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from xdpx.reports.chart import BEST, COLOURS, INK, LEVEL, QUIET, file_of
from xdpx.reports.fonts import drawable_label, families

MOST_WITH_NUMBERS = 25
"""With more classes than this, cells show only their colour."""
MOST_NAMED = 60


def confusion_picture(labels: Sequence[str], counts: Sequence[Sequence[int]], title: str, figure_format: str) -> bytes:
    """Return a confusion matrix: a row per true class, a column per predicted one, coloured by the share of the row.

    Args:
        labels: names of the C classes; one that no installed font can draw is replaced by its number.
        counts: rows by (true, predicted), (C, C).
        title: shown above it.
        figure_format: png, svg, pdf or another that matplotlib writes.
    """
    table = np.asarray(counts, np.int64)
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    size = len(labels)
    side = float(np.clip(1.9 + 0.52 * size, 4.2, 16.0))
    figure = Figure(figsize=(side + 0.9, side), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    image = axes.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
    names = [drawable_label([label], otherwise=f"class {index}") for index, label in enumerate(labels)]
    family = list(families())
    if size <= MOST_NAMED:
        upright = size <= 4 and max(map(len, names)) <= 10
        axes.set_xticks(range(size), names, rotation=0 if upright else 45, ha="center" if upright else "right",
                        rotation_mode="anchor", family=family, fontsize=10)  # fmt: skip
        axes.set_yticks(range(size), names, family=family, fontsize=10)
    axes.tick_params(length=0, colors=INK)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("predicted class", fontsize=11, color=INK)
    axes.set_ylabel("true class", fontsize=11, color=INK)
    figure.suptitle(drawable_label([title], otherwise="confusion matrix"), fontsize=12, color=INK, family=family)
    if size <= MOST_WITH_NUMBERS:
        for (row, column), count in np.ndenumerate(table):
            colour = "white" if shares[row, column] > 0.55 else INK if count else QUIET
            axes.text(column, row, f"{count:,}", ha="center", va="center", fontsize=9.5, color=colour)
    bar = figure.colorbar(image, ax=axes, shrink=0.75, label="share of the true class")
    bar.outline.set_visible(False)
    return file_of(figure, figure_format)


def difference_picture(told: Mapping[str, Any], figure_format: str) -> bytes:
    """Return a figure of `x-script compare_runs`: one line for each pair or, with a single pair, for each metric.

    Args:
        told: the JSON output of that script.
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
    axes.set_xlabel("difference with its 95 % interval; green: significant", fontsize=10, color=INK)
    figure.suptitle(drawable_label([title], otherwise="differences"), fontsize=11.5, color=INK, family=list(families()))
    return file_of(figure, figure_format)


def reliability_picture(found: Mapping[str, Any], title: str, figure_format: str) -> bytes:
    """Return a reliability diagram: accuracy over confidence with 95 % intervals, and a histogram of the confidence.

    Args:
        found: `calibration` of an input in the JSON output of x-eval.
        title: shown above it.
        figure_format: png, svg, pdf or another that matplotlib writes.
    """
    bins = found["bins"]
    means, shares = ([each[name] for each in bins] for name in ("confidence", "right"))
    reach = np.array([[each["right"] - each["interval"][0], each["interval"][1] - each["right"]] for each in bins]).T
    figure = Figure(figsize=(5.6, 6.2), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    above.plot([0, 1], [0, 1], color=LEVEL, linewidth=1.0, linestyle=(0, (4, 2)), label="perfectly calibrated")
    above.errorbar(means, shares, yerr=np.maximum(reach, 0), color=COLOURS[0], marker="o", markersize=5, capsize=2,
                   linewidth=1.6, elinewidth=1.0, label="share that is correct, 95 % interval")  # fmt: skip
    lowest = max(0.0, min([*means, *(each["interval"][0] for each in bins)]) - 0.04)
    above.set_xlim(lowest, 1.0)
    above.set_ylim(lowest, 1.0)
    above.set_ylabel("share of rows that are correct", fontsize=10.5, color=INK)
    above.legend(frameon=False, fontsize=9.5, loc="upper left")
    said = (
        f"ECE {found['ece']:.3f}; by chance {found['by_chance']:.3f}, at most {found['most_by_chance']:.3f}\n"
        f"{'overconfident' if found['too_sure'] > 0 else 'underconfident'} by {abs(found['too_sure']):.3f} on average"
    )
    above.text(0.98, 0.03, said, transform=above.transAxes, ha="right", fontsize=9.5, color=INK)
    edges = np.linspace(0.0, 1.0, len(found["histogram"]) + 1)
    below.bar(edges[:-1], found["histogram"], width=np.diff(edges), align="edge", color=QUIET, alpha=0.6)
    below.set_ylabel("rows", fontsize=10.5, color=INK)
    below.set_xlabel("probability of the predicted class", fontsize=10.5, color=INK)
    for axes in (above, below):
        axes.tick_params(colors=INK, length=0)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(drawable_label([title], otherwise="reliability"), fontsize=12, color=INK, family=list(families()))
    return file_of(figure, figure_format)
