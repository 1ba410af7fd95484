"""The figures of a run, drawn from its logs, alone or compared with reference runs."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from xdpx.logger import log
from xdpx.reports.chart import Chart, render
from xdpx.reports.curves import (
    FEW_TO_CALM,
    Axis,
    Curve,
    Stroke,
    calm,
    epoch_borders,
    group_names,
    points,
    step_axis,
    thin,
    walltime_axis,
)
from xdpx.reports.fonts import can_draw, drawable_label
from xdpx.reports.run_logs import RunLogs, read_run
from xdpx.reports.run_tables import BEST_STEP
from xdpx.utils import io
from xdpx.utils.commit import write_bytes

FOLDER = "plots"
MOST_REFERENCES = 4
FEW_TO_COMPARE = 3
"""From this many evaluations on, metrics that were equal in all of them count as the same."""
_TRAIN_COLUMNS = frozenset({"epoch", "step", "gnorm", "clip", "wps", "ups", "lr", "loss_scale"})
_VALID_COLUMNS = frozenset({*_TRAIN_COLUMNS, "train_wall", "best_score", BEST_STEP, "memory"})
_LIKELIHOODS = frozenset({"ce_loss", "kl_loss", "lm_loss", "cls_loss", "cl_loss", "rtd_loss"})
"""Components of losses, which have the same unit as the loss."""
_TRAIN_AND_VALID = {"train": Stroke.DASHED, "valid": Stroke.SOLID}


@dataclass(frozen=True)
class _DrawnRun:
    """A run with its index among those drawn together: 0 is the run itself, followed by its references."""

    number: int
    label: str
    logs: RunLogs
    axis: Axis


def draw_run(
    save_dir: str,
    *,
    label: str | None = None,
    references: Mapping[str, str] | None = None,
    figext: str = "png",
    walltime: bool = False,
) -> list[str]:
    """Draw everything in the logs of a run into `<save_dir>/plots/`, and return the paths of the files written.

    Args:
        save_dir: local or remote. What its logs do not hold (yet) is left out.
        label: the run's name in the legends, by default the name of its folder when there are references.
        references: label -> folder, of up to four runs to compare with. Their steps are rescaled so that the same
            position on the x axis means the same number of training samples.
        figext: a format matplotlib can write: png, svg, pdf ...
        walltime: use the seconds spent training as the x axis instead of steps.
    """
    runs = _drawn_runs(save_dir, label, references or {}, walltime=walltime)
    folder = io.join(save_dir, FOLDER)
    io.makedirs(folder, exist_ok=True)
    written: list[str] = []
    for name, chart in _charts(runs):
        path = io.join(folder, f"{_file_name(name)}.{figext}")
        if path in written:  # of a name that differs only in letters that no file name may have
            path = io.join(folder, f"{_file_name(name)}-{len(written)}.{figext}")
        write_bytes(path, render(_drawable(chart), figext))
        written.append(path)
        gc.collect(1)  # figures are reference cycles; of a long log, one holds 25 MB of pixels and lines
    return written


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "._-@" else "_" for letter in name)


def _drawn_runs(save_dir: str, label: str | None, references: Mapping[str, str], *, walltime: bool) -> list[_DrawnRun]:
    own = read_run(save_dir, thinned=True)
    named = [(label if label or not references else io.name(save_dir), own)]
    named += [(name, read_run(folder, thinned=True)) for name, folder in references.items()]
    names = [name for name, _ in named]
    runs: list[_DrawnRun] = []
    for number, (name, logs) in enumerate(named):
        if name and names.count(name) > 1:  # a/run and b/run: the legend would show one of them only
            name = logs.folder if name == io.name(logs.folder) else f"{name} ({logs.folder})"
        if number and not len(logs.valid) and not len(logs.train):
            log.warning(f"{logs.folder}: no logs to compare with yet; this reference is omitted from the figures.")
            continue
        axis = walltime_axis(logs) if walltime else step_axis(logs, own)
        text = _legend_text(name, number, logs)
        if text in {run.label for run in runs}:  # long paths that were shortened to the same text
            text += f" ({number})"
        runs.append(_DrawnRun(number, text, logs, axis))
    return runs


def _legend_text(name: str | None, number: int, logs: RunLogs) -> str:
    if not name:
        return ""
    text = drawable_label([name, io.name(logs.folder)], otherwise=f"reference {number}" if number else "this run")
    if not can_draw(name):
        _warn_of_fonts(name, text)
    return text


def _warn_of_fonts(text: str, shown: str) -> None:
    remedy = "Install a font that has its characters, such as Noto Sans CJK."
    log.warning(f"no installed font can draw '{text}', so figures say '{shown}'. {remedy}", once=True)


def _drawable(chart: Chart) -> Chart:
    """Return a chart with `?` for each character of its title and of its curves' names that no font can draw."""
    labels = {curve.label: _legible(curve.label) for curve in chart.curves}
    shown = {
        label: text if text == label else f"{text} ({number})" for number, (label, text) in enumerate(labels.items(), 1)
    }
    curves = [replace(curve, label=shown[curve.label]) for curve in chart.curves]
    return replace(chart, title=_legible(chart.title), curves=curves)


def _legible(text: str) -> str:
    if can_draw(text):
        return text
    shown = "".join(letter if can_draw(letter) else "?" for letter in text)
    _warn_of_fonts(text, shown)
    return shown


def _charts(runs: Sequence[_DrawnRun]) -> Iterator[tuple[str, Chart]]:
    own = runs[0]
    epochs = own.axis.place(epoch_borders(own.logs.train, own.logs.valid))
    source = drawable_label([own.logs.folder, io.name(own.logs.folder)], otherwise="")
    blank = Chart("", own.axis.label, (), epochs=epochs, source=source)
    if len(own.logs.train):
        yield from _training_charts(runs, blank)
    metrics = [name.removeprefix("valid_") for name in own.logs.valid.columns if name.startswith("valid_")]
    for title, members, same in _distinct(own.logs, group_names(metrics)):
        heading = f"{title} (the same: {', '.join(same)})" if same else title
        yield title, replace(_metric_chart(runs, title, members, blank), title=heading)
    for title, members in group_names(_summary_names(own.logs, metrics)).items():
        yield title, _summary_chart(runs, title, members, blank)


def _distinct(logs: RunLogs, groups: Mapping[str, list[str]]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield (title, metrics, titles with identical values in every evaluation), so that no figure is drawn twice."""
    first: dict[bytes, tuple[str, list[str], list[str]]] = {}
    with_training = {title for title, members in groups.items() if f"train_{members[0]}" in logs.valid}
    for title, members in sorted(groups.items(), key=lambda group: group[0] not in with_training):
        shown = np.concatenate([np.round(logs.valid[f"valid_{name}"], 12) for name in members]).tobytes()
        key = shown if len(logs.valid) >= FEW_TO_COMPARE else title.encode()
        first.setdefault(key, (title, members, []))
        if first[key][0] != title:
            first[key][2].append(title)
    yield from first.values()


def _training_charts(runs: Sequence[_DrawnRun], blank: Chart) -> Iterator[tuple[str, Chart]]:
    for name, title in (("gnorm", "gradient norm"), ("lr", "learning rate"), ("clip", "share of clipped updates")):
        curves = [curve for run in runs for curve in _training_curves(run, name, beside=len(runs) > 1)]
        if name == "clip" and not any(curve.y.any() for curve in curves):
            continue  # never clipped: the figure of gradient norms says so
        if curves:
            yield name, replace(blank, title=title, curves=curves, level=_clip_level(runs[0].logs, name))


def _training_curves(run: _DrawnRun, name: str, *, beside: bool) -> list[Curve]:
    """Return the curves of a column of the training log: the learning rate unsmoothed, noisy columns also smoothed."""
    table = run.logs.train
    known = np.isfinite(table[name])
    x, y = run.axis.place(table["step"][known]), table[name][known]
    if not len(y):
        return []
    if name == "lr":
        return [Curve(*thin(x, y), run.label, run.number)]
    if name == "clip":
        return [Curve(*calm(x, y, mean=True), run.label, run.number)]
    course = Curve(*calm(x, y), run.label or ("as logged" if len(y) < FEW_TO_CALM else "course (median)"), run.number)
    noise = [] if beside or len(y) < FEW_TO_CALM else [Curve(*thin(x, y), "", run.number, faint=True)]
    return [*noise, course]


def _clip_level(logs: RunLogs, name: str) -> tuple[float, str] | None:
    clip_norm = logs.settings.get("clip_norm")
    if name != "gnorm" or not clip_norm:
        return None
    clipped = logs.train["clip"]
    never = ", never yet" if np.isfinite(clipped).any() and not np.nan_to_num(clipped).any() else ""
    return float(clip_norm), f"clipped at {clip_norm:g}{never}"


def _summary_names(logs: RunLogs, metrics: Sequence[str]) -> list[str]:
    accumulated = [name for name in logs.valid.columns if not name.startswith(("train_", "valid_", "memory"))]
    names = [*(name for name in logs.train.columns if name not in _TRAIN_COLUMNS), *accumulated]
    return [name for name in dict.fromkeys(names) if name not in {*metrics, *_VALID_COLUMNS}]


def _metric_chart(runs: Sequence[_DrawnRun], title: str, members: Sequence[str], blank: Chart) -> Chart:
    """Draw one metric: a colour per run, training dashed and validation solid, a dot at the best evaluation."""
    if len(members) > 1:
        return _group_chart(runs, title, [(name, f"valid_{name}") for name in members], blank)
    curves = [curve for run in runs for curve in _metric_curves(run, members[0])]
    best, best_label = _best(runs[0], members[0])
    unit = (runs[0].logs.loss_unit or "") if members[0] in {"loss", *_LIKELIHOODS} else ""
    if unit and any(run.logs.loss_unit not in {None, unit} for run in runs):
        others = ", ".join(f"{run.label} in {run.logs.loss_unit}" for run in runs if run.logs.loss_unit != unit)
        log.warning(f"{title}: this run is in {unit}, but {others} (1 bit = 0.693 nats): not comparable", once=True)
        unit = f"{unit}; {others}: not comparable"
    return replace(
        blank, title=title, curves=curves, best=best, best_label=best_label, strokes=_TRAIN_AND_VALID, y_label=unit
    )


def _group_chart(runs: Sequence[_DrawnRun], title: str, members: Sequence[tuple[str, str]], blank: Chart) -> Chart:
    """Draw metrics whose names differ only in their final digits: a colour per metric, a line style per run."""
    kinds = list(Stroke)
    curves = []
    for run in runs:
        for number, (name, column) in enumerate(members):
            table = run.logs.train if column in run.logs.train else run.logs.valid
            x, y = points(table, column, run.axis)
            curves += [Curve(x, y, name, number, kinds[run.number % len(kinds)])] if len(x) else []
    strokes = {run.label: kinds[run.number % len(kinds)] for run in runs} if len(runs) > 1 else {}
    return replace(blank, title=title, curves=curves, strokes=strokes)


def _metric_curves(run: _DrawnRun, metric: str) -> list[Curve]:
    x, y = points(run.logs.valid, f"train_{metric}", run.axis)
    if not len(x):
        x, y = calm(*points(run.logs.train, metric, run.axis), mean=True)
    train = Curve(x, y, run.label, run.number, Stroke.DASHED)
    valid = Curve(*points(run.logs.valid, f"valid_{metric}", run.axis), run.label, run.number, dots=True)
    return [curve for curve in (train, valid) if len(curve.x)]


def _best(run: _DrawnRun, metric: str) -> tuple[tuple[float, float] | None, str]:
    """Return the point and legend label of the best evaluation (by the major metric), the one that `<best>` names."""
    row, valid = run.logs.best_row, run.logs.valid
    value = valid[f"valid_{metric}"][row] if row is not None else np.nan
    if row is None or not np.isfinite(value):
        return None, ""
    step = valid["step"][row]
    place = float(run.axis.place(np.array([step]))[0])
    return (place, float(value)), f"best step {step:.0f}: {value:.5g}"


def _summary_chart(runs: Sequence[_DrawnRun], title: str, members: Sequence[str], blank: Chart) -> Chart:
    if len(members) > 1:
        return _group_chart(runs, title, [(name, name) for name in members], blank)
    curves = []
    for run in runs:
        table = run.logs.train if members[0] in run.logs.train else run.logs.valid
        x, y = points(table, members[0], run.axis)
        curves += [Curve(x, y, run.label, run.number)] if len(x) else []
    return replace(blank, title=title, curves=curves)
