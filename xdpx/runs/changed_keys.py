"""Keys that have another value when a run is resumed: each of them takes effect, or is refused before it begins."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from xdpx.config.args_file import differences, newest_args
from xdpx.config.catalogue import entry
from xdpx.config.faults import THIS_RUN, ConfigError, Fault, refusal
from xdpx.config.loading import RUN_ONLY_KEYS, Run
from xdpx.config.stored_args import read_args
from xdpx.logger import log
from xdpx.training.progress import Progress
from xdpx.utils import io
from xdpx.utils.distributed_utils import is_master

ABSENT = "absent"
JUDGING = frozenset({"major_metric", "ascending_metric", "valid_subset", "max_eval_steps", "data_dir"})
"""Keys, besides those of the loss, that change the meaning of scores: earlier ones are then not comparable."""

COMPARABLE = frozenset({"metrics", "use_r_dropout", "kl_alpha"})
"""Keys of losses that change no score: what is logged besides, and how the training set is learned from."""

ORDERING = ("seed", "sampler", "batch_by_len", "train_subset")
"""Keys that decide the order of the rows in an epoch; `batch_size` and `update_freq` only for batches by length."""

_NEW_RUN = "Restore the old value, or start a new run in a new save_dir."
_ONLY_AT_THE_START = "is read when a run starts; this one has started, and takes all weights from its checkpoint."
_ABOUT_THE_START = (
    "pretrained_model", "auto_model", "q_pretrained_model", "p_pretrained_model", "q_auto_config", "p_auto_config",
    "student_pretrained_model", "student_auto_model", "strict_size", "bert_strict_size", "load_cls_weights",
    "from_tf", "tf_names", "tf_format",
)  # fmt: skip
UNIT_OF_OLD_RUNS = "bits"
"""`loss_unit` of runs that are older than this key."""
REFUSED = {
    "loss_unit": "is the unit of the logs: one table would mix both.",
    **dict.fromkeys(_ABOUT_THE_START, _ONLY_AT_THE_START),
    "lazy_load": "decides what an epoch is, a shard or a pass over all: the position in the data would be lost.",
}
"""Keys that cannot take effect on a run that has begun, and why."""

SAME_FILES = ("vocab.txt", "word_vocab.txt", "target_map.txt")
"""Files of data_dir that define the meaning of the numbers in its samples."""


class Change(NamedTuple):
    """The values of a key in the checkpoint and now; `ABSENT` if it is missing."""

    before: Any
    after: Any


Changes = Mapping[str, Change]


def lasting(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values without the keys that do not affect the result."""
    return {key: value for key, value in values.items() if key not in RUN_ONLY_KEYS}


def in_its_own_unit(run: Run, folder: str) -> Run:
    """Return the run with the unit of its existing logs, if its args.py is too old to name one."""
    written = newest_args(folder)
    try:
        known = {} if written is None else read_args(written)
    except (ConfigError, OSError):  # damaged: it is set aside later, and the state has the values
        return run
    if written is None or "loss_unit" not in run.values or "loss_unit" in known:
        return run
    log.info(f"{folder}: its logs are in {UNIT_OF_OLD_RUNS}, as at its start; new runs log in nats")
    return replace(run, values={**run.values, "loss_unit": UNIT_OF_OLD_RUNS})


def changes(run: Run, saved: Mapping[str, Any], folder: str) -> dict[str, Change]:
    """Return what is different from the run that wrote a state.

    Args:
        run: the run as configured now.
        saved: the state; if it lacks the values (older versions did not save them), the newest args.py is read.
        folder: of the run.
    """
    before, now = saved.get("values"), lasting(run.values)
    if before is None:
        written = newest_args(folder)
        before = now if written is None else lasting(read_args(written))
    if "loss_unit" in now:
        before = {"loss_unit": UNIT_OF_OLD_RUNS, **before}
    if now.get("seed", ABSENT) is None:
        now["seed"] = before.get("seed")  # that of the run goes on
    keys = [*before, *(key for key in now if key not in before)]
    pairs = {key: Change(before.get(key, ABSENT), now.get(key, ABSENT)) for key in keys}
    return {key: change for key, change in pairs.items() if change.before != change.after}


def lines(run: Run, changed: Changes) -> list[str]:
    """Return one line for each key that differs, as `differences` does, noting those without effect in any run."""
    idle = {
        prefix + item.key
        for (prefix, kind), name in run.picks.items()
        for item in entry(kind, name).parameters
        if item.doc.startswith("Accepted without effect")
    }
    old, new = ({key: change[side] for key, change in changed.items() if change[side] is not ABSENT} for side in (0, 1))
    found = differences(old, new)
    return [line + " (has no effect)" * (line[3:].partition(":")[0] in idle) for line in found]


def refuse(run: Run, changed: Changes, folder: str) -> None:
    """Raise ConfigError for each key that cannot take effect on a run that has begun.

    Args:
        run: the run as configured now.
        changed: what is different.
        folder: of the run.
    """
    faults = [_refusal(key, changed[key]) for key in REFUSED if key in changed and ABSENT not in changed[key]]
    data = run.values["data_dir"]
    for name in SAME_FILES:
        theirs, ours = io.join(data, name), io.join(folder, name)
        if io.isfile(theirs) and io.isfile(ours) and _bytes(theirs) != _bytes(ours):
            problem = f"is '{data}', whose {name} differs from that of this run: the same ids mean different things."
            remedy = f"Preprocess with the {name} of {folder}, or start a new run in a new save_dir."
            faults.append(Fault("data_dir", problem, remedy))
    if faults:
        raise ConfigError(THIS_RUN, faults)


def _refusal(key: str, change: Change) -> Fault:
    problem = f"was {change.before!r}, and is {change.after!r} now, but it {REFUSED[key]}"
    return Fault(key, problem, _NEW_RUN)


def _bytes(path: str) -> bytes:
    with io.open(path, "rb") as file:
        content: bytes = file.read()
    return content


def refuse_overruled(run: Run, changed: Changes, texts: Mapping[str, str]) -> None:
    """Raise ConfigError for changed model keys that have no effect because the run's config.json overrides them.

    Args:
        run: the run as configured now.
        changed: what is different.
        texts: what the model that was built writes beside its checkpoints.
    """
    built = json.loads(texts.get("config.json", "{}"))
    overruled = {key: change.after for key, change in changed.items() if key in built and built[key] != change.after}
    faults = [
        Fault(
            key,
            f"is {value!r}, but the config.json of this run, which decides here, says {built[key]!r}.",
            f"Write extra_config: {{{key}: {json.dumps(value)}}}." if "extra_config" in run.values else _NEW_RUN,
        )
        for key, value in overruled.items()
        if value not in (ABSENT, None)
    ]
    if faults:
        raise ConfigError(THIS_RUN, faults)


def refuse_finished(changed: Changes, progress: Progress, total: int) -> None:
    """Raise ConfigError if keys were changed, but the run has no updates left."""
    if changed and progress.num_updates >= total:
        problem = f"{', '.join(sorted(changed))} changed, but no updates are left: the run is at step "
        problem += f"{progress.num_updates} of {total}."
        remedy = "Raise max_epoch or max_update, or start a new run in a new save_dir (pretrained_model)."
        raise refusal("resume", problem, remedy)


def warn_of_order(run: Run, changed: Changes, progress: Progress, *, length: int, shards: int) -> None:
    """Warn of keys that give the rest of what has begun another order: of an epoch, or of a pass over the shards.

    Args:
        run: the run as it goes on.
        changed: its keys that have other values than in the checkpoint.
        progress: where the checkpoint stands.
        length: how many updates this epoch takes.
        shards: how many splits are trained on; with `lazy_load`, each is an epoch.
    """
    keys = [*ORDERING, *(("batch_size", "update_freq") if run.values.get("batch_by_len") else ())]
    told = {key: f"{key}: was {changed[key].before!r}, and is {changed[key].after!r}" for key in keys if key in changed}
    if not told or not is_master():
        return
    if 0 < progress.group < length:
        log.warning(
            f"{'; '.join(told.values())}. Epoch {progress.epoch} has begun, and its rest comes in another order now: "
            "some of its rows are trained on again, and as many not before the next epoch. With the old value each "
            "comes once."
        )
    elif run.values.get("lazy_load"):
        passes, place = divmod(progress.epoch - 1 + (progress.group >= length), shards)
        # The first pass is in the order of train_subset, whatever the seed is.
        others = [told[key] for key in told if (key == "train_subset" or (key == "seed" and passes)) and place]
        if others:
            log.warning(
                f"{'; '.join(others)}. Pass {passes + 1} over the shards has begun, and its rest has others now: some "
                "are trained on again, and as many not before the next pass. With the old value each comes once."
            )


def judges(run: Run, changed: Changes) -> list[str]:
    """Return the changed keys that make scores incomparable with earlier ones."""
    loss = run.picked("loss")
    judging = {*JUDGING, "loss", *loss.Parameters.model_fields} - COMPARABLE
    if loss.scored_by_teacher:
        judging |= {key for key in changed if key.startswith("teacher_")}
    return sorted(judging & changed.keys())


def without_scores(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state whose schedule keeps its learning rate, but forgets earlier scores."""
    schedule = saved["engine"].get("schedule") or {}
    kept = {name: schedule[name] for name in ("of", "factor") if name in schedule}
    return {**saved, "engine": {**saved["engine"], "schedule": kept}}


def without_facts(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state without the facts and state of a replaced loss or task; token counts are kept."""
    logging = saved["callbacks"]["logging"]
    windows = {
        name: {**window, "num_updates": 0, "sums": {"num_tokens": window["sums"].get("num_tokens", 0.0)}}
        for name, window in logging["ledger"]["windows"].items()
    }
    logging = {**logging, "ledger": {**logging["ledger"], "windows": windows}}
    callbacks = {**saved["callbacks"], "logging": logging}
    return {**saved, "callbacks": callbacks, "engine": {**saved["engine"], "task": {}}}
