"""Figures of a profile: in which modules the time is spent (a flame graph), and memory over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from xdpx.reports.chart import write_figure

WIDTH = 12.0
DEEPEST = 12
NARROWEST = 0.002
"""Share of the total below which a part is left out."""
NAMED = 0.03
"""Share of the total from which a part is wide enough for its name."""


@dataclass
class Part:
    """A node of a profile: the time it took, and its children.

    Attributes:
        seconds: total time, including that of the parts.
        parts: name -> part.
    """

    seconds: float = 0.0
    parts: dict[str, Part] = field(default_factory=dict)

    def add(self, path: Sequence[str], seconds: float) -> None:
        """Add seconds to the part at the end of `path`; its ancestors, whose own time includes them, are unchanged."""
        node = self
        for name in path:
            node = node.parts.setdefault(name, Part())
        node.seconds += seconds


def draw_flame(root: Part, path: str, *, title: str) -> None:
    """Draw a flame graph: boxes below one another, each as wide as its share of the time, the outermost on top."""
    total = sum(part.seconds for part in root.parts.values()) or 1.0
    boxes: list[tuple[int, float, float, str]] = []
    _lay_out(root, "", 0, 0.0, total, boxes)
    depth = 1 + max((level for level, *_ in boxes), default=0)
    figure = Figure(figsize=(WIDTH, 1.2 + 0.32 * depth), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    colours = matplotlib.colormaps["YlOrRd"]
    for level, left, width, name in boxes:
        colour = colours(0.15 + 0.6 * (sum(map(ord, name)) % 97) / 97)
        axes.barh(level, width, left=left, height=0.92, color=colour, edgecolor="white", linewidth=0.4)
        if width >= NAMED:
            room = max(2, int(150 * width))
            shown = name if len(name) <= room else f"…{name[1 - room :]}"  # the end of a module's name says most
            axes.text(left + 0.002, level, shown, fontsize=6, va="center", clip_on=True)
    axes.set(xlim=(0, 1), ylim=(depth - 0.5, -0.5), xlabel=f"share of {total:.3g} s", title=title, yticks=[])
    write_figure(figure, path)


def _lay_out(
    part: Part, own: str, level: int, left: float, total: float, boxes: list[tuple[int, float, float, str]]
) -> None:
    """Append a box for each part of `own`, omitting that name where it is a prefix of the part's."""
    if level >= DEEPEST:
        return
    for name, each in sorted(part.parts.items(), key=lambda item: -item[1].seconds):
        width = each.seconds / total
        if width >= NARROWEST:
            boxes.append((level, left, width, name.removeprefix(f"{own}.")))
            _lay_out(each, name, level + 1, left, total, boxes)
        left += width


def draw_memory(samples: Sequence[tuple[float, float]], path: str, *, title: str) -> None:
    """Draw memory use over time.

    Args:
        samples: (seconds, bytes), in order.
        path: of the figure, local or remote.
        title: of the figure.
    """
    figure = Figure(figsize=(WIDTH, 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    seconds, sizes = [at for at, _ in samples], [size / 2**20 for _, size in samples]
    axes.fill_between(seconds, sizes, step="post", color="#c6dbef")
    axes.step(seconds, sizes, where="post", color="#2171b5", linewidth=0.8)
    axes.set(xlabel="seconds", ylabel="MiB", title=title)
    axes.set_ylim(bottom=0)
    write_figure(figure, path)
