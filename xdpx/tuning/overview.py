"""Figures of a search: the best score of each trial over the samples it has seen, and the importance of parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

from xdpx.search.trials import Trial

BEST, FINISHED, CULLED, ACTIVE, FAILED, REFERENCE = "#1a9641", "#2166ac", "#9a9a9a", "#e08214", "#d7191c", "#4d4d4d"
STYLES: Mapping[str, Mapping[str, Any]] = {
    "culled": {"color": CULLED, "linewidth": 1.1, "alpha": 0.75, "zorder": 2},
    "finished": {"color": FINISHED, "linewidth": 1.6, "alpha": 0.9, "zorder": 4},
    "active": {"color": ACTIVE, "linewidth": 1.6, "linestyle": (0, (4, 2)), "zorder": 5},
    "failed": {"color": FAILED, "linewidth": 1.2, "zorder": 3},
    "reference": {"color": REFERENCE, "linewidth": 1.3, "linestyle": ":", "zorder": 3},
    "best": {"color": BEST, "linewidth": 2.6, "zorder": 6},
}
INK, QUIET = "#222222", "#777777"
SHARE_SHOWN = 0.02
"""Share of all evaluations, the worst, that is left out of the axis: they would hide the others."""
SPREADS_SHOWN = 10
"""The axis ends at most so many times as far below the median as the best score is above: many trials may diverge."""

Curve = Sequence[tuple[int, float]]


def best_so_far(history: Curve, sign: int) -> list[tuple[int, float]]:
    """Return a history in which each score is replaced by the best one so far."""
    found: list[tuple[int, float]] = []
    for samples, score in history:
        before = found[-1][1] if found else score
        found.append((samples, max(score, before, key=lambda each: sign * each)))
    return found


def draw_overview(
    trials: Sequence[Trial], *, metric: str, total: int, best: int | None, title: str,
    references: Mapping[str, Curve] | None = None,
) -> bytes:  # fmt: skip
    """Return a PNG with one line per trial, in the style of its outcome, and a star at the best score."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    figure = Figure(figsize=(9.2, 5.4), dpi=120)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.085, 0.115, 0.89, 0.76))
    shown: dict[str, int] = {}
    for trial in trials:
        kind = _kind(trial, best)
        shown[kind] = shown.get(kind, 0) + 1
        _draw(axes, best_so_far(trial.history, trial.sign), kind)
    others = [curve for curve in (references or {}).values() if curve]
    for curve in others:
        shown["reference"] = shown.get("reference", 0) + 1
        _draw(axes, curve, "reference")
    _mark_best(axes, trials, best, total)
    _limits(axes, trials, total, others)
    figure.text(0.085, 0.945, title, fontsize=14, fontweight="bold", color=INK)
    axes.set_xlabel("training samples seen", fontsize=11, color=INK)
    axes.set_ylabel(f"best {metric} so far", fontsize=11, color=INK)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.grid(visible=True, color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=10, colors=INK, length=3)
    _legend(axes, shown)
    return _png(figure)


def _kind(trial: Trial, best: int | None) -> str:
    if trial.number == best:
        return "best"
    return "active" if trial.state in {"running", "waiting"} else trial.state


def _draw(axes: Any, curve: Curve, kind: str) -> None:
    if not curve:
        return
    samples, scores = zip(*curve, strict=True)
    axes.plot(samples, scores, drawstyle="steps-post", solid_capstyle="round", **STYLES[kind])
    marker = {"culled": "x", "failed": "X"}.get(kind, "o")
    style = STYLES[kind]
    size = 5 if marker == "o" else 6
    axes.plot(samples[-1], scores[-1], marker, color=style["color"], markersize=size, zorder=style["zorder"] + 0.5)


def _mark_best(axes: Any, trials: Sequence[Trial], best: int | None, total: int) -> None:
    trial = next((each for each in trials if each.number == best), None)
    if trial is None or trial.best is None:
        return
    where = next(seen for seen, score in trial.history if score == trial.best)
    axes.plot(where, trial.best, "*", color=BEST, markersize=16, markeredgecolor="white", zorder=9)
    early = where < total / 4  # the text would begin left of the axis
    axes.annotate(
        f"trial {trial.number}: {trial.best:.4g}", (where, trial.best), xytext=(6 if early else -6, 10),
        textcoords="offset points", ha="left" if early else "right", fontsize=10, fontweight="bold", color=BEST,
        zorder=9,
    )  # fmt: skip


def _limits(axes: Any, trials: Sequence[Trial], total: int, references: Sequence[Curve] = ()) -> None:
    """Set the limits of the axes so that most trials, and the best scores of the references, are visible."""
    scores = sorted(trial.sign * score for trial in trials for _, score in best_so_far(trial.history, trial.sign))
    axes.set_xlim(0, total * 1.02)
    if len(scores) < 2:
        return
    low, median, high = scores[int(len(scores) * SHARE_SHOWN)], scores[len(scores) // 2], scores[-1]
    if high > median:
        low = max(low, median - SPREADS_SHOWN * (high - median))
    ends = [trials[0].sign * curve[-1][1] for curve in references]
    low, high = min([low, *ends]), max([high, *ends])
    room = (high - low or abs(high) or 1.0) * 0.08
    axes.set_ylim(*sorted(trials[0].sign * end for end in (low - room, high + 2 * room)))


def _legend(axes: Any, shown: Mapping[str, int]) -> None:
    from matplotlib.lines import Line2D

    names = [name for name in ("best", "finished", "active", "culled", "failed", "reference") if name in shown]
    lines = [
        Line2D([], [], **{key: value for key, value in STYLES[name].items() if key not in {"zorder", "alpha"}})
        for name in names
    ]
    labels = [name if name == "best" else f"{name} ({shown[name]})" for name in names]
    axes.legend(
        lines, labels, loc="lower center", bbox_to_anchor=(0.5, 1.005), ncols=len(names), frameon=False, fontsize=10,
        handlelength=2.4,
    )  # fmt: skip


def draw_importance(rows: Sequence[tuple[str, float, float, float]], *, title: str) -> bytes:
    """Return a PNG: one bar for each parameter with its 90 % interval.

    Args:
        rows: (parameter, share of the importance, low end, high end), the most important first.
        title: of the figure.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 1.3 + 0.42 * len(rows)), dpi=120)
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    names, means, lows, highs = zip(*rows, strict=True)
    reach = [
        [max(0.0, mean - low) for mean, low in zip(means, lows, strict=True)],
        [max(0.0, high - mean) for mean, high in zip(means, highs, strict=True)],
    ]
    axes.barh(range(len(rows)), means, xerr=reach, color=FINISHED, ecolor=INK, capsize=3, height=0.62)
    axes.set_yticks(range(len(rows)), names)
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.set_xlabel("share of the importance, with its 90 % interval", fontsize=10.5, color=INK)
    axes.set_title(title, fontsize=13, fontweight="bold", color=INK, loc="left")
    axes.grid(visible=True, axis="x", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return _png(figure)


def _png(figure: Any) -> bytes:
    file = BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()
