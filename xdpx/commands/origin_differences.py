"""Search the cause if x-eval computes other scores than training logged: every known one is checked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from xdpx.checkpoints import layout
from xdpx.config.args_file import newest_args
from xdpx.config.faults import first_few
from xdpx.config.stored_args import read_args
from xdpx.utils import commit, io
from xdpx.utils.commit import read_manifest

if TYPE_CHECKING:
    from xdpx.inference.plan import Input
    from xdpx.inference.predictor import Chunk, Predictor

FEW = 5
"""Longer lists show only this many names."""
MOST_ROWS = 32
"""Number of rows predicted in one batch, and then one by one."""
SAME_VALUE = 1e-4
"""Probabilities that differ by at most this much differ only by rounding."""
PRECISIONS = ("fp16", "bf16")
_VERSION = re.compile(r"\b(xdpx|python|torch|numpy|transformers) (\d[\w.+-]*)")


class Suspect(NamedTuple):
    """One possible cause of different scores.

    Attributes:
        what: its name.
        found: the problem found; '' if there is none.
    """

    what: str
    found: str


def suspects(predictor: Predictor, source: Input, save_dir: str, *, max_eval_steps: int | None) -> Iterator[Suspect]:
    """Yield each possible cause, with what was found.

    Args:
        predictor: the one that scored.
        source: the input that was scored.
        save_dir: of the run.
        max_eval_steps: as given to the command.
    """
    yield Suspect("settings", _settings(predictor, save_dir, max_eval_steps))
    yield Suspect("code", _code(save_dir))
    yield Suspect("versions", _versions(save_dir))
    yield Suspect("data", _data(source, save_dir))
    yield Suspect("weights", _weights(predictor, save_dir))
    yield Suspect("precision", _precision(save_dir))
    chunk = _mixed_lengths(predictor, source)
    if chunk is not None:
        yield Suspect("chance", _chance(predictor, chunk))
        yield Suspect("padding", _padding(predictor, chunk))


def in_words(found: list[Suspect]) -> list[str]:
    """Return lines: first the problems, then what was checked without a finding."""
    lines = [f"  {each.what}: {each.found}" for each in found if each.found]
    well = ", ".join(each.what for each in found if not each.found)
    lines += [f"  checked, no difference found: {well}"] if well else []
    if not any(each.found for each in found):
        lines.append("  Remaining causes: another device, number of processes or threads.")
    return ["possible causes:", *lines]


def _settings(predictor: Predictor, save_dir: str, max_eval_steps: int | None) -> str:
    """Compare the parameters of the run with those used for scoring."""
    path = newest_args(save_dir)
    stored = {} if path is None else read_args(path)
    used = predictor.plan.train.values
    lines = [f"{key}: {stored[key]!r} in training, {used[key]!r} here" for key in stored
             if key in predictor.plan.given and stored[key] != used.get(key)]  # fmt: skip
    if max_eval_steps is not None and max_eval_steps != stored.get("max_eval_steps"):
        lines.append(f"max_eval_steps: {stored.get('max_eval_steps')} in training, {max_eval_steps} here")
    if used["engine"] != stored.get("engine", used["engine"]):
        lines.append(f"engine: {stored['engine']} in training, {used['engine']} here")
    return "; ".join(lines)


def _code(save_dir: str) -> str:
    """Compare the files of the package and the user's modules with those in the snapshot of the training."""
    from xdpx.runs.snapshot import changed_files

    changed = changed_files(save_dir)
    if changed is None:
        return "there is no snapshot.zip to compare with."
    name, files = changed
    return f"{len(files)} files differ from {name}: {first_few(files, FEW)}" if files else ""


def _versions(save_dir: str) -> str:
    """Compare versions with those logged at the last start of the run."""
    from xdpx.training.environment import versions

    path = io.join(save_dir, "log.txt")
    if not io.isfile(path):
        return ""
    then: dict[str, str] = {}
    with io.open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            found = dict(_VERSION.findall(line))
            then = found if "torch" in found and "numpy" in found else then
    now = versions()
    return ", ".join(
        f"{name} {then[name]} in training, {now[name]} here" for name in then if then[name] != now.get(name)
    )


def _data(source: Input, save_dir: str) -> str:
    """Return whether the split is damaged, or was preprocessed again after the run began."""
    if not source.is_store:
        return ""
    folder, name = io.parent(source.path), io.name(source.path).rpartition(".")[0]
    problems = commit.problems(folder, name, hashes=True)
    if problems:
        return "; ".join(problems)
    manifest, args = read_manifest(folder, name), newest_args(save_dir)
    if manifest is None or args is None:
        return ""
    from datetime import UTC, datetime

    began = datetime.fromtimestamp(float(io.last_modified(args)), UTC)
    made = datetime.fromisoformat(manifest.created)
    return f"{name} was prepared {made:%Y-%m-%d %H:%M}, after the run began ({began:%H:%M})" if made > began else ""


def _weights(predictor: Predictor, save_dir: str) -> str:
    """Return the damages of the checkpoint. Missing weights are an error before anything is scored."""
    from xdpx.checkpoints.checkpointer import Checkpointer

    path = predictor.plan.checkpoint or ""
    step = layout.step_of(io.name(path))
    if step is None or io.abspath(io.parent(path)) != io.abspath(save_dir):
        return ""
    return "; ".join(Checkpointer(save_dir, writes=False).weights_problems(step))


def _precision(save_dir: str) -> str:
    path = newest_args(save_dir)
    stored: Mapping[str, Any] = {} if path is None else read_args(path)
    half = [name for name in PRECISIONS if stored.get(name) or stored.get("precision") == name]
    return f"training scored in {half[0]}, and here it is float32" if half else ""


# ---- the same rows again


def _mixed_lengths(predictor: Predictor, source: Input) -> Chunk | None:
    """Return some of the shortest and longest rows, for much padding; None if rows cannot be picked."""
    if predictor.plan.joins_lines or "prob" not in predictor.task.header():
        return None
    chunk = next(iter(predictor.chunks(source)), None)
    if chunk is None or "length" not in chunk.samples or not len(chunk.samples):
        return None
    order = np.argsort(chunk.samples.lengths, kind="stable")
    half = min(MOST_ROWS, len(order)) // 2
    return _taken(chunk, np.unique(np.concatenate([order[:half], order[len(order) - max(1, half) :]])))


def _taken(chunk: Chunk, rows: Any) -> Chunk:
    return chunk._replace(
        rows=[], samples=chunk.samples.take(rows), kept=np.arange(len(rows)), labelled=False, targets=None
    )


def _chance(predictor: Predictor, chunk: Chunk) -> str:
    """Predict the same batch twice, to detect dropout or other randomness."""
    gap = _gap(predictor.predict(chunk, alone=True), predictor.predict(chunk, alone=True))
    return (
        f"the same batch twice gives probabilities that differ by up to {gap:.2g}: something is random" if gap else ""
    )


def _padding(predictor: Predictor, chunk: Chunk) -> str:
    """Predict rows together and one by one: the result of a row must not depend on the rest of the batch."""
    together = predictor.predict(chunk, alone=True, batch_size=MOST_ROWS)
    each = [predictor.predict(_taken(chunk, np.array([row])), alone=True) for row in range(len(chunk.samples))]
    alone = {"prob": np.concatenate([one["prob"] for one in each])}
    gap = _gap(together, alone)
    if gap <= SAME_VALUE:
        return ""
    return (
        f"a row alone and the same row beside longer ones have probabilities that differ by up to {gap:.2g}: the model "
        "reads its padding, so that scores depend on batch_size and on the number of processes"
    )


def _gap(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    return float(np.abs(np.asarray(one["prob"], np.float64) - np.asarray(other["prob"], np.float64)).max(initial=0.0))
