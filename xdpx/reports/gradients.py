"""Figures of the gradient of every weight, which show where gradients vanish or explode."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from xdpx.reports.chart import write_figure
from xdpx.reports.gradient_words import Sizes, by_layer

INCHES_PER_WEIGHT = 0.16
WIDTH = 9.0
SMALLEST = 1e-12
"""Smaller gradients are drawn at this size; a gradient of exactly 0 gets a red cross."""
MANY_ZEROS = 0.5
"""Shares of zeros from this one on are written next to the bar, e.g. of an embedding with tokens that no batch has."""


LAYERS_NAMED = 60
"""The most rows of the history figure that get a label, so that labels stay readable."""


def draw_gradients(sizes: Sizes, path: str, *, title: str) -> None:
    """Draw a bar for each weight and write it to `path`, in the format of its suffix.

    Args:
        sizes: name of a weight -> (mean, largest) absolute gradient and share of zeros, in the order of the model.
        path: of the figure, local or remote.
        title: of the figure.
    """
    names = list(sizes)
    means, largest, zeros = np.array([sizes[name] for name in names], dtype=np.float64).reshape(-1, 3).T
    figure = Figure(figsize=(WIDTH, 1.5 + INCHES_PER_WEIGHT * len(names)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    places = np.arange(len(names))
    axes.barh(places, np.maximum(largest, SMALLEST), color="#c6dbef", label="largest")
    axes.barh(places, np.maximum(means, SMALLEST), height=0.5, color="#2171b5", label="mean")
    zero = np.flatnonzero(largest == 0.0)
    axes.plot(np.full(len(zero), SMALLEST), zero, "x", color="#d62728", label="zero", linestyle="none")
    for place in np.flatnonzero((zeros >= MANY_ZEROS) & (largest > 0.0)):
        axes.annotate(f" {zeros[place]:.0%} zeros", (largest[place], place), fontsize=5, va="center", color="#636363")
    axes.set(xscale="log", xlabel="absolute gradient", title=title, yticks=places, yticklabels=names)
    axes.tick_params(axis="y", labelsize=6)
    axes.invert_yaxis()
    axes.legend(loc="upper right", fontsize=7)
    write_figure(figure, path)


def draw_history(history: Sequence[tuple[int, Sizes]], path: str) -> None:
    """Draw the mean gradient of each layer over the updates, dark where it is large, red where it is exactly 0.

    Args:
        history: (step, sizes) of each look, oldest first.
        path: of the figure, local or remote.
    """
    looks = [(step, by_layer(sizes)) for step, sizes in history]
    layers = list(looks[-1][1])
    values = np.array([[sizes.get(layer, np.nan) for _, sizes in looks] for layer in layers], dtype=np.float64)
    shown = np.log10(np.where(values > 0, values, np.nan))
    figure = Figure(figsize=(WIDTH, 1.8 + INCHES_PER_WEIGHT * min(len(layers), 3 * LAYERS_NAMED)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    colours = matplotlib.colormaps["Blues"].with_extremes(bad="#d62728")
    ends = (-0.5, len(looks) - 0.5, len(layers) - 0.5, -0.5)
    picture = axes.imshow(shown, aspect="auto", interpolation="nearest", cmap=colours, extent=ends)
    every = max(1, -(-len(looks) // 8))
    axes.set_xticks(range(0, len(looks), every), [str(step) for step, _ in looks[::every]])
    every = max(1, -(-len(layers) // LAYERS_NAMED))
    axes.set_yticks(range(0, len(layers), every), layers[::every], fontsize=6)
    axes.set(xlabel="step", title="mean absolute gradient of each layer (red: exactly 0)")
    figure.colorbar(picture, ax=axes, label="power of 10")
    write_figure(figure, path)
