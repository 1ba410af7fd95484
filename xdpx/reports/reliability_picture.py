"""How sure a model is and how often it is right, as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from xdpx.reports.chart import COLOURS, INK, LEVEL, QUIET
from xdpx.reports.fonts import drawable_label, families


def reliability_picture(found: Mapping[str, Any], title: str, figure_format: str) -> bytes:
    """Return a picture: the share of right rows over confidence, with 95 % intervals, and how many rows there are.

    Args:
        found: `calibration` of an input, as x-eval prints it as JSON.
        title: above it.
        figure_format: png, svg, pdf or another that matplotlib writes.
    """
    bins = found["bins"]
    means, shares = ([each[name] for each in bins] for name in ("confidence", "right"))
    reach = np.array([[each["right"] - each["interval"][0], each["interval"][1] - each["right"]] for each in bins]).T
    figure = Figure(figsize=(5.6, 6.2), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[4, 1])
    above.plot([0, 1], [0, 1], color=LEVEL, linewidth=1.0, linestyle=(0, (4, 2)), label="as sure as it should be")
    above.errorbar(means, shares, yerr=np.maximum(reach, 0), color=COLOURS[0], marker="o", markersize=5, capsize=2,
                   linewidth=1.6, elinewidth=1.0, label="share that is right, 95 % interval")  # fmt: skip
    lowest = max(0.0, min([*means, *(each["interval"][0] for each in bins)]) - 0.04)
    above.set_xlim(lowest, 1.0)
    above.set_ylim(lowest, 1.0)
    above.set_ylabel("share of rows that are right", fontsize=10.5, color=INK)
    above.legend(frameon=False, fontsize=9.5, loc="upper left")
    said = (
        f"ECE {found['ece']:.3f}; by chance {found['by_chance']:.3f}, at most {found['most_by_chance']:.3f}\n"
        f"{'too sure' if found['too_sure'] > 0 else 'not sure enough'} by {abs(found['too_sure']):.3f} on average"
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
    buffer = BytesIO()
    figure.savefig(buffer, format=figure_format)
    return buffer.getvalue()
