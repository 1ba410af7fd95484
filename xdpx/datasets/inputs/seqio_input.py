"""SeqIO-like inputs: a task or a mixture, sharded, shuffled, converted and padded, with metrics on outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xdpx.config.hparams import BaseHParams, sub_config_field
from xdpx.datasets.inputs import seqio_metrics
from xdpx.datasets.inputs.base_input import (
    ArraySpec,
    BaseInput,
    Problem,
    State,
    name_of,
    refuse_all,
    refused,
    state_number,
)
from xdpx.datasets.inputs.codecs import Codec
from xdpx.datasets.inputs.converters import FeatureConverter, LanguageModelFeatures
from xdpx.datasets.inputs.examples import Examples, Pool
from xdpx.datasets.inputs.order import PLACES_PER_BLOCK, Blend, Order, num_batches, weights_of
from xdpx.datasets.inputs.rows import PROVENANCE, SAMPLE_WEIGHTS
from xdpx.datasets.inputs.seqio_tasks import Mixture, Task, find
from xdpx.datasets.inputs.streams import OnePerRow, PackedRows, Recipe, Stream
from xdpx.datasets.inputs.windows import window_of
from xdpx.logger import log
from xdpx.utils.nested_map import NestedMap

DEFAULT_SEED = 0
"""Default seed of the shuffle; fixed, because all hosts must have the same order without communicating."""


class SeqIOInput(BaseInput):
    """Batches of a task or a mixture of tasks.

    The order of examples is a function of (seed, epoch), so every host knows without communication which rows of a
    global batch are its own and where the data end, and a position can be restored at once.
    """

    class HParams(BaseInput.HParams):
        """Fields of the input.

        Attributes:
            mixture_name: a registered task or mixture; or
            mixture_or_task: a template of one.
            split_name: the split of it.
            task_feature_lengths: maximum number of tokens of each feature.
            feature_converter: how features become the arrays of a model.
            shuffle: whether examples are reordered in each epoch; None: in training. Ignored in evaluation.
            repeat: whether examples are repeated for ever; None: in training, and in evaluation by a rolling window.
            trim_output_features: whether features that are too long are cut; otherwise they are errors.
            eval_auto_pad: whether an evaluation pads the last batch with rows of weight 0.
            drop_remainder: whether an incomplete last batch is dropped. Without padding it always is, so False is an
                error in training that does not repeat, and in an evaluation with eval_auto_pad=False.
            num_batches_to_skip: number of batches that training skips at the start.
            eval_num_examples: number of examples to evaluate, from the first on; None or 0: all.
            eval_metrics_targets_length: number of tokens of targets that metric functions get; None: all.
            eval_metrics_prediction: key of the prediction in an output of decoding.
            eval_metrics_score: key of the score in an output of scoring.
            packing_window: number of examples that are packed together.
        """

        mixture_name: str | None = None
        mixture_or_task: Any = None
        split_name: str = "train"
        task_feature_lengths: dict[str, int] = field(default_factory=dict)
        feature_converter: FeatureConverter.HParams = sub_config_field(LanguageModelFeatures.HParams)
        shuffle: bool | None = None
        repeat: bool | None = None
        trim_output_features: bool = True
        eval_auto_pad: bool = True
        drop_remainder: bool = True
        num_batches_to_skip: int = 0
        eval_num_examples: int | None = None
        eval_metrics_targets_length: int | None = None
        eval_metrics_prediction: str = "decoded_substr"
        eval_metrics_score: str = "scores"
        packing_window: int = 4096

    def __init__(self, hparams: BaseHParams) -> None:
        super().__init__(hparams)
        self.task: Task | Mixture = find(_named(hparams))
        self.converter: FeatureConverter = hparams.feature_converter.Instantiate()
        self.shuffle, self.repeat = _shuffle_of(hparams), _repeat_of(hparams)
        _check(hparams, self.task, self.converter, self.repeat)
        self.limits = self.converter.limits(hparams.task_feature_lengths)

    # ---- batches

    @cached_property
    def pool(self) -> Pool:
        """The examples of all tasks; their sources are opened on first use."""
        p = self.hparams
        lengths = {name: p.task_feature_lengths[name] for name in self.converter.feature_names}
        limit = None if p.is_training else p.eval_num_examples or None
        tasks = self.task.tasks if isinstance(self.task, Mixture) else [self.task]
        options: dict[str, Any] = {"limit": limit, "trim": p.trim_output_features}
        pool = Pool([Examples(task, p.split_name, lengths, **options) for task in tasks])
        pool.refuse_different_codecs()
        return pool

    @cached_property
    def seed(self) -> int | None:
        """Seed of the order; None without shuffling."""
        given = self.hparams.input_random_seed
        return (DEFAULT_SEED if given is None else given) if self.shuffle else None

    @cached_property
    def stream(self) -> Stream:
        """The stream of batches."""
        p = self.hparams
        recipe = Recipe(
            pool=self.pool,
            order=self._order(),
            converter=self.converter,
            limits=self.limits,
            batch_size=p.batch_size,
            num_hosts=self.num_hosts,
            host=self.host_index,
            pad=p.eval_auto_pad and not p.is_training,
            provenance=self._has_provenance,
        )
        stream: Stream = PackedRows(recipe, p.packing_window) if self.converter.hparams.pack else OnePerRow(recipe)
        if p.is_training and p.num_batches_to_skip:
            stream.skip(p.num_batches_to_skip)
        return stream

    def _order(self) -> Order | Blend:
        sizes = self.pool.sizes
        if not isinstance(self.task, Mixture):
            return Order(sizes[0], self.seed, self.repeat)
        rates = self.task.hparams.rates or [None] * len(sizes)
        blend = Blend(sizes, weights_of(sizes, rates), self.seed)
        for part, wanted in blend.too_frequent.items():
            named = self.task.tasks[part].hparams.name or f"task {part + 1}"
            least = f"one example in {PLACES_PER_BLOCK:,}, the minimum"
            log.warning(f"{name_of(self.hparams)}: {named} is {least}; by its rate, it would be one in {wanted:,.0f}.")
        return blend

    @property
    def _has_provenance(self) -> bool:
        return not self.hparams.is_training and isinstance(self.task, Task)

    def get_next(self) -> NestedMap:
        """Return this host's rows of the next batch. Raises StopIteration at the end of the data."""
        return self.stream.next_batch()

    def reset(self) -> None:
        """Start again from the first batch."""
        super().reset()
        self.__dict__.pop("stream", None)

    @property
    def batches_per_epoch(self) -> int | None:
        """Number of batches of one epoch, the same on all hosts; None if the data repeat or are packed."""
        if self.repeat or self.converter.hparams.pack:
            return None
        pad = self.hparams.eval_auto_pad and not self.hparams.is_training
        return num_batches(self.pool.sizes[0], self.hparams.batch_size, self.num_hosts, pad=pad)

    # ---- position

    def get_state(self) -> State:
        """Return the position over all hosts, from which any number of hosts can resume."""
        digests = [part.source.digest for part in self.pool.parts]
        return {**self.stream.place(), **self._identity(), **self._shares(), "digests": digests}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a position, also with another number of hosts or another batch size.

        Raises:
            ValueError: the state is of other data or another order.
        """
        for key, value in self._identity().items():
            if state.get(key) != value:
                raise ValueError(
                    f"{self.name}: the state was taken with {key}={state.get(key)!r}, this input has {value!r}: its "
                    "position means nothing here. Restore the data and fields it was made with, or start a new job."
                )
        for key, value in self._shares().items():
            if state.get(key, value) != value:
                log.warning(
                    f"{self.name}: the state was taken with the rates {state[key]}, this mixture has {value}. It goes "
                    "on where it would be if these had held from the start: some examples come again, others not until "
                    "the next epoch."
                )
        for part, digest in zip(self.pool.parts, state.get("digests", []), strict=False):
            if digest is not None and part.source.digest not in {digest, None}:
                log.warning(
                    f"{self.name}: the examples of {part.task.hparams.name or 'the task'} have changed since the state "
                    "was taken, though not their number. It goes on at the same place, with the examples as they are "
                    "now. Restore them, or start a new job, if the model should not see both."
                )
        self.stream.go_to({key: state_number(state, key, self) for key in self.stream.place()})

    def _shares(self) -> State:
        """Return the rates of a mixture, rounded to shares; {} for a single task."""
        order = self.stream.recipe.order
        return {"rates": (order.quotas / PLACES_PER_BLOCK).tolist()} if isinstance(order, Blend) else {}

    def _identity(self) -> State:
        """Return the values that must be equal for positions to be comparable."""
        packed = {"packing_window": self.hparams.packing_window, "limits": list(self.limits)}
        sizes = {"sizes": list(self.pool.sizes), "seed": self.seed}
        return {**sizes, **packed} if self.converter.hparams.pack else sizes

    # ---- properties

    def spec(self) -> NestedMap:
        """Return the ArraySpec of every array of a padded batch, without any data."""
        rows = self.hparams.batch_size + self.hparams.batch_padding_size
        specs = self.converter.spec(rows, self.limits)
        specs[SAMPLE_WEIGHTS] = ArraySpec((rows,), np.dtype(np.float32))
        if self._has_provenance:
            names = ("index_within_shard", "num_shards", "shard_index")
            shape = (rows, max(self.limits)) if self.converter.hparams.pack else (rows,)
            specs[PROVENANCE] = NestedMap({name: ArraySpec(shape, np.dtype(np.int32)) for name in names})
        return specs

    @property
    def codec(self) -> Codec | None:
        """The codec for decoding ids: that of the first task with one; None if there is none."""
        return next((part.codec for part in self.pool.parts if part.codec is not None), None)

    def ids_to_strings(
        self, ids: NDArray[Any], lengths: NDArray[Any] | None = None, key: str | None = None
    ) -> list[str]:
        """Return token ids (B, T) as texts by the task's vocabulary, or as numbers if it has none."""
        if self.codec is None:
            return super().ids_to_strings(ids, lengths, key)
        ids = np.asarray(ids)
        lengths = np.full(len(ids), ids.shape[1]) if lengths is None else np.asarray(lengths)
        return [self.codec.decode(row[:n]) for row, n in zip(ids.tolist(), lengths.tolist(), strict=True)]

    def tokenizer_digest(self, key: str | None = None) -> str | None:
        """Return the digest of the task's vocabulary."""
        del key
        return None if self.codec is None else self.codec.digest

    # ---- metrics

    @property
    def has_predict_metrics(self) -> bool:
        """Whether the task has metrics for decoded outputs."""
        return isinstance(self.task, Task) and self.task.has_predict_metrics

    @property
    def has_score_metrics(self) -> bool:
        """Whether the task has metrics for scores of targets."""
        return isinstance(self.task, Task) and self.task.has_score_metrics

    def row_keys(self, batch: NestedMap) -> list[str | None]:
        """Return the key of each row, which identifies the example of an output; None for padding rows."""
        return seqio_metrics.row_keys(batch)

    def predict_metrics(self, outputs: Sequence[tuple[str | None, Any]]) -> dict[str, float]:
        """Return the metrics of decoded outputs; see `seqio_metrics.judge`."""
        return seqio_metrics.judge(self, outputs, "predict")

    def score_metrics(self, outputs: Sequence[tuple[str | None, Any]]) -> dict[str, float]:
        """Return the metrics of scores; see `seqio_metrics.judge`."""
        return seqio_metrics.judge(self, outputs, "score")


def _named(p: BaseHParams) -> Any:
    if (p.mixture_name is None) is (p.mixture_or_task is None):
        problem = "and mixture_or_task: exactly one of them must be given."
        raise refused(p, "mixture_name", problem, "Name a registered task, or give a template of one.")
    return p.mixture_name if p.mixture_name is not None else p.mixture_or_task


def _shuffle_of(p: BaseHParams) -> bool:
    if p.shuffle and not p.is_training:
        log.warning(f"{name_of(p)}: shuffle is ignored: an evaluation sees examples in order.", once=True)
    return p.is_training and p.shuffle is not False


def _repeat_of(p: BaseHParams) -> bool:
    if p.repeat is not None:
        return bool(p.repeat)
    return bool(p.is_training or window_of(p).kind == "rolling")


def _check(p: BaseHParams, task: Task | Mixture, converter: FeatureConverter, repeat: bool) -> None:
    """Check the fields, before anything is read.

    Raises:
        ConfigError: with all invalid fields.
    """
    refuse_all(p, _problems(p, task, converter, repeat))


def _problems(p: BaseHParams, task: Task | Mixture, converter: FeatureConverter, repeat: bool) -> Iterator[Problem]:
    if p.batch_size is None:
        yield "batch_size", "is missing.", "Give the rows per host."
    missing = [name for name in converter.feature_names if name not in p.task_feature_lengths]
    if missing:
        known = ", ".join(p.task_feature_lengths) or "nothing"
        remedy = f"Give task_feature_lengths={{'{missing[0]}': <tokens>}}, or with_inputs=False in the converter."
        yield "task_feature_lengths", f"has no {' and no '.join(missing)}, only {known}.", remedy
    if isinstance(task, Mixture) and not repeat:
        remedy = "Evaluate each task by itself: eval_inputs_of_tasks(...) makes their configurations."
        yield "repeat", "is False, but a mixture has no end.", remedy
    if p.is_training and not (repeat or p.drop_remainder):
        problem = "is False, but the remainder of the data is smaller than the batch that the step is compiled for."
        yield "drop_remainder", problem, "Leave it out, which drops the remainder, or set repeat=True."
    if not p.is_training:
        yield from _eval_problems(p, task, converter, repeat)


def _eval_problems(
    p: BaseHParams, task: Task | Mixture, converter: FeatureConverter, repeat: bool
) -> Iterator[Problem]:
    window = window_of(p)
    if window.kind == "full_epoch" and repeat:
        yield "repeat", "is True, so an evaluation of a full epoch would never end.", "Set repeat=False."
    if window.kind == "rolling" and not repeat:
        yield "repeat", f"is False, but eval_window='{window}' never ends.", "Set repeat=True, or 'full_epoch'."
    if not (p.eval_auto_pad or p.drop_remainder):
        problem = (
            "and eval_auto_pad are both False: the last batch would have a different shape from the compiled step."
        )
        yield "drop_remainder", problem, "Set one of them to True."
    whole_prompt = isinstance(converter, LanguageModelFeatures) and not converter.hparams.weights_on_targets_only
    if isinstance(task, Task) and task.has_score_metrics and whole_prompt:
        remedy = "Set weights_on_targets_only=True."
        yield "feature_converter", f"scores the prompt too, but task '{task.hparams.name}' scores targets.", remedy
