"""Compute metrics of outputs, which are joined with their examples by keys, in any order and from any host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np

from xdpx.config.hparams import BaseHParams
from xdpx.datasets.inputs.base_input import refused
from xdpx.datasets.inputs.rows import PROVENANCE
from xdpx.datasets.inputs.seqio_tasks import Mixture, Task, find, task_of
from xdpx.datasets.inputs.streams import source_row
from xdpx.utils.nested_map import NestedMap

Kind = Literal["predict", "score"]
KeyedOutputs = Sequence[tuple[str | None, Any]]


class JudgedInput(Protocol):
    """The attributes of a `SeqIOInput` that `judge` uses."""

    @property
    def hparams(self) -> Any:
        """Its template."""

    @property
    def name(self) -> str:
        """Its name in messages."""

    @property
    def task(self) -> Any:
        """The task or mixture that it reads."""

    @property
    def converter(self) -> Any:
        """Its feature converter."""

    @property
    def window(self) -> Any:
        """Its evaluation window."""

    @property
    def pool(self) -> Any:
        """Its examples."""


def row_keys(batch: NestedMap) -> list[str | None]:
    """Return `shard/shards/index` of each row; None for padding rows.

    Raises:
        ValueError: the batch has no provenance, or its rows are packed.
    """
    if PROVENANCE not in batch or np.ndim(batch[PROVENANCE].shard_index) > 1:
        raise ValueError(
            "The batch does not map each of its rows to one example: it is a training batch, packed, or of a "
            "mixture. Evaluate one task, with a converter that does not pack."
        )
    found = origins(batch)
    return ["/".join(map(str, row[0])) if row else None for row in found]


def origins(batch: NestedMap) -> list[list[tuple[int, int, int]]]:
    """Return (shard, shards, index) of each example of each row: several for a packed row, none for a padding row."""
    where = batch[PROVENANCE]
    names = ("shard_index", "num_shards", "index_within_shard")
    stacked = np.stack([np.asarray(where[name]).reshape(len(where[name]), -1) for name in names], axis=-1)
    return [[tuple(one) for one in row if one[0] >= 0] for row in stacked.tolist()]


def judge(data: JudgedInput, outputs: KeyedOutputs, kind: Kind) -> dict[str, float]:
    """Return the metrics of the input's task, computed from the outputs of all hosts.

    Args:
        data: the input that the batches came from.
        outputs: (key of a row from `row_keys`, output of the model: a mapping, or the prediction or score itself), in
            any order; those without a key are ignored, and of equal keys the last one is used.
        kind: whether they are predictions ("predict") or scores of the targets ("score").

    Returns:
        Metric name -> value; empty if the task has no metric functions of this kind.

    Raises:
        ConfigError: the input packs rows or reads a mixture, or an output lacks the entry that the input names.
        ValueError: with a full epoch, an example has no output.
    """
    functions = _functions(data, kind)
    if not functions:
        return {}
    found = _by_example(data, outputs)
    if data.window.kind == "full_epoch":
        _refuse_missing(data, found)
    rows = sorted(found)
    targets = [_target(data, row) for row in rows]
    said = [_said(data, row, found[row], kind) for row in rows]
    values: dict[str, float] = {}
    for function in functions:
        values.update(function(targets, said))
    return values


def _functions(data: JudgedInput, kind: Kind) -> Sequence[Callable[..., Any]]:
    task = data.task
    if not isinstance(task, Task):
        raise refused(data.hparams, "mixture_name", "is a mixture.", "Evaluate each task by itself.")
    functions = task.hparams.predict_metric_fns if kind == "predict" else task.hparams.score_metric_fns
    if functions and data.converter.hparams.pack:
        remedy = "Set pack=False in the converter of this evaluation."
        raise refused(data.hparams, "feature_converter", "packs, so outputs do not belong to single examples.", remedy)
    return functions  # type: ignore[no-any-return]


def _by_example(data: JudgedInput, outputs: KeyedOutputs) -> dict[int, Any]:
    size = data.hparams.batch_size
    found = {}
    for key, output in outputs:
        if key is not None:
            shard, shards, index = map(int, key.split("/"))
            found[source_row(shard, shards, index, batch_size=size)] = output
    return found


def _refuse_missing(data: JudgedInput, found: Mapping[int, Any]) -> None:
    count = data.pool.sizes[0]
    missing = sorted(set(range(count)) - set(found))
    if missing:
        raise ValueError(
            f"{data.name}: {len(missing)} of {count} examples have no output, the first of them example {missing[0]}. "
            "Gather the outputs of all hosts and of the whole epoch first."
        )


def _target(data: JudgedInput, row: int) -> Any:
    """Return the target of an example for metric functions, trimmed only to `eval_metrics_targets_length`."""
    part = data.pool.parts[0]
    ids = part.untrimmed(row, "targets")[: data.hparams.eval_metrics_targets_length]
    value = ids if part.codec is None else part.codec.decode(ids)
    return _postprocessed(data, value, row, is_target=True)


def _said(data: JudgedInput, row: int, output: Any, kind: Kind) -> Any:
    p = data.hparams
    entry = p.eval_metrics_prediction if kind == "predict" else p.eval_metrics_score
    if isinstance(output, Mapping):
        if entry not in output:
            key = "eval_metrics_prediction" if kind == "predict" else "eval_metrics_score"
            raise refused(p, key, f"is '{entry}'; a row has {', '.join(output)}.", "Name one of these.")
        output = output[entry]
    if kind == "predict":
        return _postprocessed(data, output, row, is_target=False)
    return float(np.asarray(output)) if np.ndim(output) == 0 else np.asarray(output)


def _postprocessed(data: JudgedInput, value: object, row: int, *, is_target: bool) -> Any:
    part = data.pool.parts[0]
    postprocess = part.task.hparams.postprocess
    return value if postprocess is None else postprocess(value, example=part.raw(row), is_target=is_target)


def eval_inputs_of_tasks(template: BaseHParams, kind: Kind, *, names: Iterable[str] | None = None) -> list[Any]:
    """Return an evaluation input for each task of a mixture, over one epoch of the task.

    Args:
        template: `SeqIOInput.HParams` of the mixture (or of one task).
        kind: "predict": the model gets one token of the targets, metric functions all that `task_feature_lengths`
            allows; "score": both get these. Tasks without metric functions of this kind are skipped.
        names: only tasks with these names.

    Returns:
        HParams, one per task.
    """
    found = find(template.mixture_name if template.mixture_name is not None else template.mixture_or_task)
    listed = found.hparams.tasks if isinstance(found, Mixture) else [found.hparams]
    wanted = None if names is None else set(names)
    made = []
    for item in listed:
        task = task_of(item)
        has = task.has_predict_metrics if kind == "predict" else task.has_score_metrics
        if has and (wanted is None or task.hparams.name in wanted):
            made.append(_eval_input(template, task, kind))
    return made


def _eval_input(template: BaseHParams, task: Task, kind: Kind) -> Any:
    lengths = dict(template.task_feature_lengths)
    made = template.clone().set(
        name=f"{task.hparams.name}_{kind}",
        mixture_name=None,
        mixture_or_task=task.hparams.clone(),
        is_training=False,
        shuffle=False,
        repeat=False,
        eval_window="full_epoch",
        reset_for_eval=True,
        eval_loop_num_batches=None,
    )
    if kind == "predict":
        made.set(eval_metrics_targets_length=lengths.get("targets"), task_feature_lengths={**lengths, "targets": 1})
    return made
