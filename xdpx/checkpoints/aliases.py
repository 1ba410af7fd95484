"""The aliases `<best>` and `<last>` of the checkpoint with the best score and of the newest one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from xdpx.checkpoints import layout, tf_files
from xdpx.config.faults import THIS_RUN, ConfigError, Fault
from xdpx.logger import log
from xdpx.utils import hub, io

BEST = "<best>"
LAST = "<last>"
VALID_LOG = "valid.log.tsv"
BEST_STEP = "best_step"
_MODELS = frozenset({"model.safetensors", "pytorch_model.bin"})
"""Files that a folder in Hugging Face format holds."""


def resolve(path: str, folder: str | None = None) -> str:
    """Return the file of a checkpoint path, in which `<best>` and `<last>` are replaced.

    Args:
        path: `<best>` or `<last>`, with or without a folder before it. The path of a file, or of a model, is returned
            unchanged.
        folder: used if the path has no folder.

    Raises:
        FileNotFoundError: there is no such checkpoint, no folder is known, or the path is the folder of a run; the
            message says where it was searched.
    """
    head, _, alias = path.rpartition("/")
    if alias not in {BEST, LAST}:
        _refuse_run(path)
        return path
    where = head or folder
    if not where:
        raise FileNotFoundError(
            f"{path} does not say which run it belongs to. Write its folder in front, like out/my_run/{path}."
        )
    return io.join(where, layout.weights_file(best_step(where) if alias == BEST else last_step(where)))


def _refuse_run(path: str) -> None:
    """Raise FileNotFoundError if a path is the folder of a run, which holds several checkpoints and is none itself."""
    names = {io.name(each) for each in io.listdir(path)} if io.isdir(path) else set[str]()
    if names & _MODELS or all(layout.step_of(name) is None for name in names):
        return
    raise FileNotFoundError(
        f"{path} is the folder of a run. Name the checkpoint: {io.join(path, BEST)} or {io.join(path, LAST)}."
    )


def with_files(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a run with aliases replaced by files, in the keys that name pretrained weights.

    The name of a Hugging Face model that is not a local path becomes its folder in the local cache, if it is cached;
    with from_tf, the name of a TensorFlow checkpoint becomes its index file.

    Raises:
        ConfigError: there is no such checkpoint; with a fault for each key.
    """
    found, faults = dict(values), []
    for key, value in values.items():
        if key.endswith(("pretrained_model", "pretrained_memories")) and isinstance(value, str):
            if value == values.get("save_dir"):  # a run that goes on reads its architecture there, and no weights
                continue
            try:
                found[key] = path = resolve(value)
                if is_of_tensorflow(key, values):
                    found[key] = tf_files.index_of(path)
                elif not io.exists(path):
                    found[key] = hub.kept_folder(path) or path
            except FileNotFoundError as error:
                if is_of_tensorflow(key, values):
                    problem, remedy = f"cannot be used: {error}", "Name what TensorFlow wrote, or set from_tf: false."
                elif io.exists(value):
                    problem, remedy = f"cannot be used: {error}", ""
                else:
                    problem, remedy = f"is '{value}', which does not exist. {error}", "Train that run first."
                faults.append(Fault(key, problem, remedy, code="missing_path"))
    if faults:
        raise ConfigError(THIS_RUN, faults)
    return found


def is_of_tensorflow(key: str, values: Mapping[str, Any]) -> bool:
    """Return whether the config sets `from_tf` for a key that names pretrained weights."""
    prefix = key.removesuffix("pretrained_model")
    switch = f"{prefix}from_tf" if prefix in {"teacher_", "student_"} else "from_tf"
    return prefix != key and values.get(switch) is True


def last_step(folder: str) -> int:
    """Return the highest step whose weights are in `folder`. Raises FileNotFoundError if there are none."""
    return _saved_steps(folder)[-1]


def best_step(folder: str) -> int:
    """Return the saved step with the best score, by `best_score` of valid.log.tsv: the last one at which it changed.

    The first of equal scores is the best, unless the best score was reset between them (`best_step`); NaN is ignored.
    If the weights of the best step were not saved, those of the best one before it are used, with a warning.

    Raises:
        FileNotFoundError: there are no weights, no log, no score in it, or no weights of a best step.
    """
    saved = set(_saved_steps(folder))
    log_path = io.join(folder, VALID_LOG)
    if not io.isfile(log_path):
        raise FileNotFoundError(f"{log_path}: there is no log of scores, so the best checkpoint is not known.")
    with io.open(log_path, errors="replace", newline="\n") as log_file:
        reached = _best_so_far(line.removesuffix("\n") for line in log_file if line.endswith("\n"))
    for step in reversed(reached):
        if step in saved:
            if step != reached[-1]:
                problem = f"step {reached[-1]} scored best, but has no weights here"
                log.warning(f"{folder}: {problem}; {BEST} is step {step}.", once=True)  # x-serve looks again and again
            return step
    tried = ", ".join(map(str, reversed(reached))) or "none"
    raise FileNotFoundError(
        f"{folder}: no checkpoint of a best step was kept (best steps: {tried}; saved: {sorted(saved)}). Use {LAST}."
    )


def _best_so_far(lines: Iterator[str]) -> list[int]:
    """Return the steps at which `best_score`, or its step, changed, in order: the last one is the best of the run.

    Rows with a cell that is not a number, such as damaged ones, are skipped.
    """
    header = next(lines, "").split("\t")
    if "best_score" not in header or "step" not in header:
        return []
    score_at, step_at = header.index("best_score"), header.index("step")
    reset_at = header.index(BEST_STEP) if BEST_STEP in header else score_at
    steps: list[int] = []
    before = ("", "")
    for cells in (line.split("\t") for line in lines):
        if len(cells) != len(header) or cells[score_at] in {"", "nan"}:
            continue
        best = (cells[score_at], cells[reset_at])
        if best != before:
            with suppress(ValueError):
                float(cells[score_at])
                steps.append(int(cells[step_at]))
                before = best
    return steps


def _saved_steps(folder: str) -> list[int]:
    names = [io.name(path) for path in io.listdir(folder)] if io.isdir(folder) else []
    steps = sorted(step for step in map(layout.step_of, names) if step is not None)
    if not steps:
        raise FileNotFoundError(f"{folder}: contains no {layout.weights_file(0).replace('0', '<step>')}.")
    return steps
