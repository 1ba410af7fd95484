"""A task with one model and one learner: the functions that the engine compiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xdpx.config.faults import THIS_RUN, ConfigError, Fault, refusal, wrong_return
from xdpx.config.hparams import BaseHParams, Configurable, build, build_a, sub_config_field
from xdpx.engines.spmd.partitioning import logical_axes, path_name
from xdpx.models.spmd.base_layer import (
    AUX_LOSS,
    DECODER_CACHE,
    NON_TRAINABLE,
    PARAMS,
    RANDOM,
    SUMMARIES,
    eval_context,
    total_aux_loss,
)
from xdpx.models.spmd.base_model import BaseModel
from xdpx.optimizers.spmd.learner import Learner
from xdpx.tasks.spmd.aggregating import TOTAL, LossAggregator
from xdpx.tasks.spmd.early_stopping import build_stopping
from xdpx.tasks.spmd.metrics import BaseMetrics, Sums, sums_of_batch, weighted_sums
from xdpx.tasks.spmd.noise import VariationalNoise, with_noise
from xdpx.tasks.spmd.train_fields import TrainHParams, faults_of
from xdpx.utils.nested_map import NestedMap

Variables = Mapping[str, Any]
"""`params`, and `non_trainable` where the model has such."""

NOISE, LAYERS = 0, 1
"""Folded into the random key of a step, so that noise and layers draw different numbers."""


class DecodeHParams(BaseHParams):
    """How decoded outputs are written to files.

    Attributes:
        output_pickle: write a .pickle beside each .jsonl.
    """

    output_pickle: bool = True


class InferHParams(BaseHParams):
    """How predictions are written to files in mode `infer`.

    Attributes:
        output_num_shards: files per input and process.
    """

    output_num_shards: int = 32


class LossOutputs(NamedTuple):
    """What `train_loss` returns in addition to loss sum and count."""

    metrics: Sums
    non_trainable: Any
    summaries: Mapping[str, Any]


class SingleTask(Configurable):
    """Computes loss, metrics, predictions and decodings of a batch, as pure functions of the variables.

    Attributes:
        model: a layer with `compute_predictions`, `compute_loss`, and if it can decode, `decode`.
        learner: updates the weights from their gradients.
        metrics: converts the metrics of the model, and averages them over batches.
    """

    class HParams(BaseHParams):
        """Fields of a task.

        Attributes:
            name: in messages.
            model: template of the model.
            train: how it is trained.
            metrics: template of a `BaseMetrics`; None: weighted means of the model's metrics.
            loss_aggregator: template of a `LossAggregator`; None: minimise `loss_name` of the learner.
            vn: noise on the weights during training.
            decode: how decoded outputs are written to files.
            infer: how predictions are written to files.
            early_stopping_fn: template or function that decides after evaluations whether to stop; None: never.
            summary_verbosity: 0 writes no summaries of layers.
        """

        name: str = "task"
        model: Any = None
        train: Any = sub_config_field(TrainHParams)
        metrics: Any = None
        loss_aggregator: Any = None
        vn: Any = sub_config_field(VariationalNoise)
        decode: Any = sub_config_field(DecodeHParams)
        infer: Any = sub_config_field(InferHParams)
        early_stopping_fn: Any = None
        summary_verbosity: int = 3

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        if hparams.model is None:
            raise refusal(f"{hparams.name}.model", "is None.", "Give the template of a model.")
        self.model: Any = build(hparams.model)
        decoder = self.model.decoder_template() if isinstance(self.model, BaseModel) else None
        if decoder is not None:
            build(decoder.clone())  # refuses wrong fields now, not when it decodes after hours of training
        if not callable(self.model):
            problem = f"'{type(self.model).__name__}' has no __call__()."
            remedy = "Derive it from xdpx.models.spmd.base_model.BaseModel."
            raise refusal(f"{hparams.name}.model", problem, remedy)
        self.learner: Learner = build(hparams.train.learner)
        faults = list(faults_of(hparams.train, self.learner))
        if hparams.infer.output_num_shards < 1:
            problem = f"is {hparams.infer.output_num_shards}."
            faults.append(Fault("infer.output_num_shards", problem, "Use 1 or more."))
        if faults:
            raise ConfigError(THIS_RUN, faults)
        of_class = "Derive the class from BaseMetrics, and give its template: Mine.HParams()."
        given = BaseMetrics.HParams() if hparams.metrics is None else hparams.metrics
        self.metrics = build_a(BaseMetrics, given, f"{hparams.name}.metrics", of_class)
        self.early_stopping = build_stopping(hparams.early_stopping_fn, f"{hparams.name}.early_stopping_fn")
        self._aggregator = _aggregator(hparams, self.learner)

    # ---- what the engine computes

    def init(self, key: jax.Array, batch: Any) -> dict[str, Any]:
        """Return all variables, boxed with the names of their axes. To be traced by JAX: runs the model once."""
        keys = dict(zip((PARAMS, RANDOM), jax.random.split(key), strict=True))
        with eval_context(not self.hparams.train.always_use_train_for_model_init):
            variables = self.model.init(keys, batch)
        self.learner.prepare(logical_axes(variables[PARAMS]))
        return {PARAMS: variables[PARAMS], NON_TRAINABLE: variables.get(NON_TRAINABLE, {})}

    def train_loss(self, variables: Variables, batch: Any, key: jax.Array) -> tuple[jax.Array, jax.Array, LossOutputs]:
        """Return (loss sum, count, `LossOutputs`) of one micro-batch; the gradient is that of loss sum / count.

        Auxiliary losses of layers are included: they are means over the batch, so they are added times count.
        """
        batch = NestedMap.FromNestedDict(batch)  # one that was kept in a file, to be taken again, is a plain dict
        noisy = {
            **variables,
            PARAMS: with_noise(variables[PARAMS], self.hparams.vn, jax.random.fold_in(key, NOISE)),
        }
        rngs = {RANDOM: jax.random.fold_in(key, LAYERS)}
        with eval_context(False):
            (metrics, per_example), changed = self._apply(noisy, batch, rngs=rngs, mutable=[NON_TRAINABLE])
        metrics = with_aux_loss(metrics, changed.get(AUX_LOSS, {}))
        mean, count = self._aggregator.aggregate(metrics)
        if TOTAL not in self._aggregator.keys:
            mean = mean + metrics[AUX_LOSS][0]
        sums = sums_of_batch(self.metrics, weighted_sums(metrics), per_example, batch)
        non_trainable = changed.get(NON_TRAINABLE, variables.get(NON_TRAINABLE, {}))
        return mean * count, count, LossOutputs(sums, non_trainable, self._summaries(changed))

    def eval_metrics(self, variables: Variables, batch: Any) -> tuple[Sums, dict[str, Any], dict[str, Any]]:
        """Return (metrics as (sum, weight), values per example, summaries) of a batch."""
        with eval_context(True):
            (metrics, per_example), changed = self._apply(variables, batch, rngs={}, mutable=[])
        metrics = with_aux_loss(metrics, changed.get(AUX_LOSS, {}))
        sums = sums_of_batch(self.metrics, weighted_sums(metrics), per_example, batch)
        return sums, dict(per_example), self._summaries(changed)

    def predict(self, variables: Variables, batch: Any) -> Any:
        """Return the model's predictions for a batch."""
        with eval_context(True):
            return self.model.apply(variables, batch, method="compute_predictions")

    def decode(self, variables: Variables, batch: Any, key: jax.Array) -> Any:
        """Return what the model decodes from a batch: (metrics as (mean, weight), values per example, output)."""
        with eval_context(True):
            out, _ = self.model.apply(
                variables, batch, rngs={RANDOM: key}, mutable=[DECODER_CACHE, SUMMARIES], method="decode"
            )
        _refuse_no_decoding(self.model, out)
        return out

    # ---- on the host

    def process_decode_out(self, model_input: Any, out: Any) -> tuple[Mapping[str, Any], Sequence[tuple[str, Any]]]:
        """Return (metrics as (mean, weight), (key, row) of each example) from a decoded output, on the host."""
        found: Any = self.model.process_decode_out(model_input, out)
        if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], Mapping)):
            remedy = "Return ({name: (mean, weight)}, [(key, {name: value}) of each example])."
            raise wrong_return("model", self.model, "process_decode_out", _described(found), remedy)
        return found

    # ---- inside

    def _apply(self, variables: Variables, batch: Any, *, rngs: Any, mutable: list[str]) -> Any:
        """Return ((metrics, values per example), collections that layers changed)."""
        found, changed = self.model.apply(variables, batch, rngs=rngs, mutable=[*mutable, AUX_LOSS, SUMMARIES])
        _refuse_no_metrics(type(self.model).__name__, found)
        return found, changed

    def _summaries(self, sown: Mapping[str, Any]) -> dict[str, Any]:
        """Return the scalars that layers recorded, by path; one per layer of a stack."""
        if not self.hparams.summary_verbosity:
            return {}
        return dict(_scalars(sown.get(SUMMARIES, {})))


def _refuse_no_metrics(model: str, found: object) -> None:
    """Raise ConfigError unless a model returned ({name: (mean, weight)}, {name: values per example}). Traced."""
    where = f"{model}.compute_loss"
    remedy = "Return ({name: (mean, weight)} of single numbers, {name: values per row})."
    if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], Mapping)):
        raise refusal(where, f"gave a {type(found).__name__}, which is not a pair of mappings.", remedy)
    if not isinstance(found[1], Mapping):
        raise refusal(where, f"gave {_described(found[1])} as the values per row, which have no names.", remedy)
    for name, pair in found[0].items():
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(jnp.ndim(part) == 0 for part in pair)):
            raise refusal(where, f"gave for '{name}' no pair of single numbers.", remedy)


def _refuse_no_decoding(model: object, found: object) -> None:
    """Raise ConfigError unless a model returned (metrics, values per example, decoded output). Traced."""
    remedy = "Return (metrics, values per example, decoded output): the third is what is processed."
    if not (isinstance(found, tuple) and len(found) == 3 and isinstance(found[0], Mapping)):
        raise wrong_return("model", model, "decode", _described(found), remedy)
    if not jax.tree.leaves(found[2]):
        raise wrong_return("model", model, "decode", "no decoded output as the third part", remedy)


def _described(found: object) -> str:
    """Return what a method returned, for messages: its type, and of a tuple those of its parts."""
    parts = f" of {', '.join(type(part).__name__ for part in found)}" if isinstance(found, tuple) and found else ""
    return f"a {type(found).__name__}{parts}"


def with_aux_loss(metrics: Mapping[str, Any], collected: Any) -> dict[str, Any]:
    """Return metrics with `aux_loss`, which is also added to `total_loss`; unchanged if the model has done both.

    Args:
        metrics: (mean, weight) by name.
        collected: the auxiliary losses of the layers.
    """
    one = jnp.ones((), jnp.float32)
    if AUX_LOSS in metrics:
        return {**metrics, AUX_LOSS: (metrics[AUX_LOSS][0], one)}  # per batch, also where no layer adds anything
    added = total_aux_loss(collected)[0]
    total = {TOTAL: (metrics[TOTAL][0] + added, metrics[TOTAL][1])} if TOTAL in metrics else {}
    return {**metrics, **total, AUX_LOSS: (added, one)}


def _scalars(collected: Any) -> list[tuple[str, Any]]:
    found = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(collected):
        name = path_name(path)
        if leaf.ndim == 0:
            found.append((name, leaf))
        elif leaf.ndim == 1:  # one per layer of a stack
            found += [(f"{name}_{index}", leaf[index]) for index in range(leaf.shape[0])]
    return found


def _aggregator(hparams: Any, learner: Learner) -> LossAggregator:
    if hparams.loss_aggregator is None:
        return LossAggregator(loss_key=learner.hparams.loss_name)
    aggregator: LossAggregator = build(hparams.loss_aggregator)
    named = learner.hparams.loss_name
    if named is not None and getattr(aggregator.hparams, "loss_key", None) != named:
        where = f"{hparams.name}.train.learner.loss_name"
        raise refusal(where, f"is '{named}', but loss_aggregator decides what is minimised.", "Set it to None.")
    return aggregator
