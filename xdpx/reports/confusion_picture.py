"""A table of confusions as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from xdpx.reports.chart import INK, QUIET
from xdpx.reports.fonts import drawable_label, families

MOST_WITH_NUMBERS = 25
"""Of more classes the cells show their colour alone."""
MOST_NAMED = 60


def confusion_picture(labels: Sequence[str], counts: Sequence[Sequence[int]], title: str, figure_format: str) -> bytes:
    """Return a picture: a row for each true class, a column for each predicted one, coloured by shares of the row.

    Args:
        labels: names of the C classes; one that no installed font can draw is shown as its number.
        counts: rows by (true, predicted), (C, C).
        title: above it.
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
    buffer = BytesIO()
    figure.savefig(buffer, format=figure_format)
    return buffer.getvalue()
