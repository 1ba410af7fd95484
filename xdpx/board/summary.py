"""The row of a run in the board's table, read from the ends of its files only."""

from __future__ import annotations

import ast
import hashlib
import json
import math
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from xdpx.board.finding import TRAINER_STATE, RunFolder
from xdpx.board.logs import FILES, has_tables, history, history_file
from xdpx.board.safe_files import NotShown, openable, read_small
from xdpx.checkpoints.parts import PROGRESS
from xdpx.config.args_file import args_among
from xdpx.config.stored_args import texts_of
from xdpx.reports.aggregation import LIVE_SECONDS
from xdpx.reports.following import ends_of
from xdpx.reports.run_logs import Columns
from xdpx.training.status import STATUS_FILE, read_status
from xdpx.utils import io
from xdpx.utils.metric_names import is_higher_better
from xdpx.utils.redaction import redact

SILENT_SECONDS = 600
"""A run whose status is running, but that has written nothing for this long, is shown as silent."""
TEXTS_OF_SETTINGS = 200
"""The most characters of a value that are shown in the table."""
UNCOMPARED = frozenset({"save_dir", "data_dir", "__version__", "output_dir", "logging_dir", "run_name", "_n_gpu"})
"""Parameters that differ between all runs anyway."""


@dataclass
class Summary:
    """What the table shows of a run.

    Attributes:
        id: identifies the run in requests; it does not change unless the folder is renamed.
        name: of its folder, relative to the folder of the board.
        door: the program: x-train, Trainer or x-exp.
        state: running, finished, preempted, failed, silent, or '' if unknown.
        step, total: updates so far, and in total; None if unknown.
        score: best value of `metric` so far.
        ascending: whether a higher score is better; None if unknown.
        updated: when it last wrote something, in seconds since 1970.
        samples: per update, by the newest settings; None if unknown.
        paces: [step, samples per update from there on], several if a run was resumed with another batch size.
        trouble: what is wrong with its files.
        train, valid: column names of its logs.
        last: the newest evaluation row, in the order of `valid`.
        settings: parameter -> value, as written; later only those that differ from the common ones.
        has_settings: whether there are any.
    """

    id: str
    name: str
    door: str
    state: str = ""
    step: int | None = None
    total: int | None = None
    epoch: int | None = None
    score: float | None = None
    metric: str = ""
    ascending: bool | None = None
    updated: float = 0.0
    samples: float | None = None
    paces: list[list[float]] = field(default_factory=list)
    trouble: str = ""
    train: list[str] = field(default_factory=list)
    valid: list[str] = field(default_factory=list)
    last: list[float | None] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    has_settings: bool = False

    def facts(self, headers: dict[tuple[str, ...], int]) -> dict[str, object]:
        """Return its values for JSON, with column names replaced by their index in `headers`, which runs share."""
        train, valid = (headers.setdefault(tuple(names), len(headers)) for names in (self.train, self.valid))
        return {**vars(self), "settings": all_shown(self.settings), "train": train, "valid": valid}


def lower_is_better(headers: Iterable[tuple[str, ...]]) -> list[str]:
    """Return the columns, among those of logs, of which a lower value is better."""
    return sorted({name for names in headers for name in names if is_higher_better(name) is False})


def run_id(name: str) -> str:
    """Return the id of a run in requests, a hash that does not reveal the path."""
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def shown_name(path: str, root: str) -> str:
    """Return the name of a folder relative to the folder of the board; invalid UTF-8 becomes �."""
    inside = io.plain(path).removeprefix(io.plain(root)).strip("/")
    return (inside or io.name(root) or path).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def summary_of(run: RunFolder, root: str) -> Summary:
    """Return the row of a run. Damaged files are left out and named in `trouble`."""
    name = shown_name(run.path, root)
    found = Summary(run_id(io.plain(run.path)), name, run.door, updated=run.modified)
    _add_settings(found, run, root)
    found.has_settings = bool(found.settings)
    found.samples = _samples({**found.settings, **_batches(run, root)})
    found.paces = _paces(found, run, root)
    found.metric = str(_value(found.settings, "major_metric", "metric_for_best_model") or "")
    ascending = _value(found.settings, "ascending_metric", "greater_is_better")
    found.ascending = ascending if isinstance(ascending, bool) else None
    if has_tables(run):
        _add_ends(found, run, root)
    else:
        _add_history(found, run, root)
    _add_state(found, run, root)
    return found


def _add_state(found: Summary, run: RunFolder, root: str) -> None:
    quiet = time.time() - max(run.modified, found.updated)  # folders in an object store have no modification time
    if STATUS_FILE not in run.files:
        found.state = "running" if quiet < LIVE_SECONDS else ""
        return
    try:
        status = read_status(run.path) if openable(run.files[STATUS_FILE].path, root) else None
    except (OSError, NotShown) as error:
        status, found.trouble = None, str(error)
    if status is None:
        found.trouble = found.trouble or f"{STATUS_FILE} is damaged"
        return
    found.state = "silent" if status.status == "running" and quiet > SILENT_SECONDS else str(status.status)
    found.step = max(status.step, found.step or 0)
    found.total = status.total_steps
    if found.score is None and status.best_score is not None:
        found.score = _finite(status.best_score)


def _add_ends(found: Summary, run: RunFolder, root: str) -> None:
    for log, name in FILES.items():
        if name not in run.files:
            continue
        try:
            columns, cells = ends_of(openable(run.files[name].path, root))
        except (OSError, NotShown) as error:
            found.trouble = str(error)
            continue
        if not columns and (run.files[name].size or 0) > 0:
            found.trouble = f"{name} is damaged: it does not begin with its column names"
        row = dict(zip(columns, map(_number, cells), strict=False)) if len(cells) == len(columns) else {}
        found.step = max(int(row.get("step") or 0), found.step or 0) or None
        found.epoch = max(int(row.get("epoch") or 0), found.epoch or 0) or None
        if log == "train":
            found.train = columns
        else:
            found.valid, found.last = columns, [row.get(column) for column in columns]
            found.score = row.get("best_score")


def _add_history(found: Summary, run: RunFolder, root: str) -> None:
    path = history_file(run)
    entry = io.store(path).entry(path) if path else None
    if entry is None:
        return
    try:
        tables = history(openable(path, root), entry)
    except NotShown as error:
        found.trouble = str(error)
        return
    if not any(tables.values()) and (entry.size or 0) > 0:
        found.trouble = f"{io.name(path)} contains no readable log"
    train, valid = tables["train"], tables["valid"]
    found.train, found.valid = list(train), list(valid)
    found.updated = max(found.updated, entry.modified or 0.0)
    found.last = [_finite(values[-1]) for values in valid.values()]
    steps = [float(columns["step"][-1]) for columns in (train, valid) if columns]
    found.step = int(max(steps)) if steps else None
    _add_best(found, valid)
    if io.name(path) == TRAINER_STATE:
        found.total = _total(path)


def _add_best(found: Summary, valid: Columns) -> None:
    metric = found.metric.removeprefix("eval_") or "loss"
    scores = valid.get(f"valid_{metric}", np.empty(0))
    known = scores[np.isfinite(scores)]
    if len(known):
        found.metric = metric
        found.ascending = found.ascending if found.ascending is not None else is_higher_better(metric) is not False
        found.score = float(known.max() if found.ascending else known.min())


def _total(path: str) -> int | None:
    try:
        total = json.loads(read_small(path)).get("max_steps")
    except (ValueError, AttributeError, RecursionError):
        return None
    return total if type(total) is int and 0 < total < 2**63 else None


def _add_settings(found: Summary, run: RunFolder, root: str) -> None:
    """Add the parameters of a run, as written, from whichever file its program wrote."""
    names = [*(name for _, name in args_among(run.files)[-1:]), "experiment_cls_vars.txt"]
    paths = [run.files[name].path for name in names if name in run.files]
    if not has_tables(run) and run.newest_checkpoint:
        paths.append(io.join(run.path, run.newest_checkpoint, "training_args.json"))
    for path in paths:
        try:
            text = read_small(openable(path, root))
        except NotShown as error:
            found.trouble = str(error) if io.name(path) in run.files else found.trouble
            continue
        texts = _texts(path, text)
        found.settings |= {key: value[:TEXTS_OF_SETTINGS] for key, value in texts.items()}
        whole = bool(texts) and text.rstrip().endswith("}")
        if text and not whole and run.door == "x-train":  # next to a Trainer, args.py may be the user's program
            found.trouble = f"{io.name(path)} is damaged: it is not the complete dict that x-train writes"


def _texts(path: str, text: str) -> dict[str, str]:
    if path.endswith(".json"):
        return _texts_of_json(text)
    if path.endswith(".txt"):
        pairs = (line.strip().partition(": ") for line in text.splitlines() if line.startswith(" "))
        return {key: value for key, colon, value in pairs if colon}
    return texts_of(text) or _texts_of_literal(text)


def _texts_of_json(text: str) -> dict[str, str]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return {str(key): repr(value) for key, value in values.items()} if isinstance(values, dict) else {}


def _texts_of_literal(text: str) -> dict[str, str]:
    try:
        values = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return {}
    return {str(key): repr(value) for key, value in values.items()} if isinstance(values, dict) else {}


def _value(settings: Mapping[str, str], *keys: str) -> object:
    for key in keys:
        if key in settings:
            try:
                return ast.literal_eval(settings[key])
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
    return None


def _samples(settings: Mapping[str, str]) -> float | None:
    size = _value(settings, "batch_size", "per_device_train_batch_size")
    count = _value(settings, "update_freq", "gradient_accumulation_steps") or 1
    known = isinstance(size, int | float) and isinstance(count, int | float)
    return float(size * count) if known and not isinstance(size, bool) else None  # type: ignore[operator]


def _batches(run: RunFolder, root: str) -> dict[str, str]:
    """Return the samples of a batch over all processes, which the settings of a Trainer give for one, if it told."""
    if has_tables(run) or not run.newest_checkpoint:
        return {}
    try:
        told = _texts_of_json(read_small(openable(io.join(run.path, run.newest_checkpoint, PROGRESS), root)))
    except (OSError, NotShown):
        return {}
    size = _value(told, "samples_per_batch")
    return {"batch_size": repr(size)} if type(size) is int and size > 0 else {}


def _paces(found: Summary, run: RunFolder, root: str) -> list[list[float]]:
    """Return [step, samples per update from there on]; the newest for all steps if any of the others is unknown."""
    if found.samples is None:
        return []
    *earlier, (step, _) = args_among(run.files) or [(0, "")]
    sizes = [_earlier_samples(run.files[name].path, root) for _, name in earlier]
    known = [[begin, samples] for (begin, _), samples in zip(earlier, sizes, strict=True) if samples is not None]
    if not known or len(known) < len(earlier) or known[0][0] > 0:
        return [[0, found.samples]]
    return [*known, [step, found.samples]]


def _earlier_samples(path: str, root: str) -> float | None:
    try:
        return _samples(_texts(path, read_small(openable(path, root))))
    except (OSError, NotShown):
        return None


def _number(cell: str) -> float | None:
    try:
        return _finite(float(cell))
    except ValueError:
        return None


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def compared(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a run without those that differ between all runs anyway."""
    return {sys.intern(key): sys.intern(text) for key, text in settings.items() if key not in UNCOMPARED}


def differences(settings: Mapping[str, str], common: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a run that differ from the common ones; '' for one that it lacks."""
    changed = {key: text for key, text in settings.items() if common.get(key) != text and key not in UNCOMPARED}
    return compared(changed) | {key: "" for key in common if key not in settings}


@lru_cache(maxsize=1 << 16)
def shown(key: str, text: str) -> str:
    """Return the displayed text of a setting: secrets are hidden, also those recognised by the parameter's name."""
    return redact(f"{key}={text}").removeprefix(f"{key}=")


def all_shown(settings: Mapping[str, str]) -> dict[str, str]:
    """Return all settings as displayed."""
    return {key: shown(key, text) for key, text in settings.items()}
