"""How large the gradient of every weight is: the picture that shows where gradients vanish or explode."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from xdpx.utils.commit import write_bytes

INCHES_PER_WEIGHT = 0.16
WIDTH = 9.0
SMALLEST = 1e-12
"""Anything below is drawn here; a gradient of exactly 0 gets a red cross."""


def draw_gradients(sizes: Mapping[str, tuple[float, float]], path: str, *, title: str) -> None:
    """Draw a bar for each weight and write it to `path`, in the format of its suffix.

    Args:
        sizes: name of a weight -> (mean, largest) absolute gradient, in the order of the model.
        path: of the figure, any path.
        title: what it shows.
    """
    names = list(sizes)
    means, largest = np.array([sizes[name] for name in names], dtype=np.float64).reshape(-1, 2).T
    figure = Figure(figsize=(WIDTH, 1.5 + INCHES_PER_WEIGHT * len(names)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    places = np.arange(len(names))
    axes.barh(places, np.maximum(largest, SMALLEST), color="#c6dbef", label="largest")
    axes.barh(places, np.maximum(means, SMALLEST), height=0.5, color="#2171b5", label="mean")
    zero = np.flatnonzero(largest == 0.0)
    axes.plot(np.full(len(zero), SMALLEST), zero, "x", color="#d62728", label="zero", linestyle="none")
    axes.set(xscale="log", xlabel="absolute gradient", title=title, yticks=places, yticklabels=names)
    axes.tick_params(axis="y", labelsize=6)
    axes.invert_yaxis()
    axes.legend(loc="upper right", fontsize=7)
    content = BytesIO()
    figure.savefig(content, format=path.rpartition(".")[2], dpi=150)
    write_bytes(path, content.getvalue())
