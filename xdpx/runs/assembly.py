"""From a checked run to the parts that train: data, task, engine. Nothing is written here."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from xdpx.checkpoints import aliases
from xdpx.config.args_file import ARGS_FILE
from xdpx.config.faults import ConfigError, Fault, refusal
from xdpx.config.loading import Run
from xdpx.config.spmd_keys import SPMD
from xdpx.datasets.evaluation_data import EvaluationData, exact_width
from xdpx.datasets.plan import Position
from xdpx.datasets.store import AGAIN, Store, digest
from xdpx.datasets.training_data import Ranks, TrainingData
from xdpx.engines.base import Batch, Engine, Split
from xdpx.logger import log
from xdpx.runs import resuming
from xdpx.runs.parameters import TrainParameters
from xdpx.tasks.scoring import Metrics, tell_of_classes
from xdpx.tokenizers.target_map import TargetMap
from xdpx.tokenizers.vocabulary import Vocabulary
from xdpx.training.callbacks.logging import TrainMetrics
from xdpx.training.progress import Progress
from xdpx.utils import io
from xdpx.utils.decisions import slow_average, updates_of
from xdpx.utils.distributed_utils import by_the_first, place_in_group
from xdpx.utils.metric_names import is_higher_better
from xdpx.utils.verified import refuse_altered

if TYPE_CHECKING:
    from xdpx.engines.pytorch.options import EngineOptions
    from xdpx.engines.pytorch.strategies.base import Strategy
    from xdpx.engines.pytorch.world import World

PLAN_KEYS = (
    "data_dir", "train_subset", "exclude_valid_from_train", "lazy_load", "batch_by_len",
    "max_epoch", "max_update", "batch_size", "update_freq",
)  # fmt: skip
"""Keys that decide the number of updates. While none of them changes, a resumed run keeps its original number."""

WIDTH_OF_MIXED_PRECISION = 8
"""Tensor cores are efficient for widths that are multiples of this."""

CLEAN_BATCHES = 2**14
"""Number of batches without an fp16 overflow, over all processes, after which the loss scale is doubled."""

HeldOut = Callable[[], Generator[Batch]]


class TrainedLoss(Metrics, Protocol):
    """What training needs of a loss beside its gradient: see `losses.base.Loss`."""

    learns_labels: ClassVar[bool]
    compares_rows: ClassVar[bool]
    hooks_model: ClassVar[bool]
    of_any_size: ClassVar[bool]

    @property
    def takes_texts_for_alike(self) -> bool:
        """Whether all texts of a training row are to get similar vectors, whatever its label."""
        ...

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Compute what the training log shows, from sums of facts."""
        ...

    def refuse_labels(self, names: Sequence[str]) -> None:
        """Raise ConfigError if the names of the classes contradict what their numbers mean to the loss."""
        ...


@dataclass(frozen=True)
class Parts:
    """The components of one training.

    Attributes:
        held_out: returns a fresh iterable of the batches to score on.
        total: updates of the whole schedule.
        seed: decides all randomness.
        texts: text files that must lie beside a checkpoint, by name; filled when the model is built.
        task_metrics: computes the training metrics of the task, in addition to those of its loss.
        scored: SHA-256 by name of the file of the rows to score on; empty if it has no manifest.
    """

    engine: Engine
    loss: TrainedLoss
    data: TrainingData
    held_out: HeldOut
    total: int
    seed: int
    texts: Mapping[str, str]
    task_metrics: TrainMetrics | None = None
    scored: Mapping[str, str] = field(default_factory=dict)

    def train_metrics(self, facts: Mapping[str, float]) -> dict[str, float]:
        """Compute what the training log shows, from sums of facts.

        Raises:
            ConfigError: the loss or the task reads a fact that it does not return.
        """
        try:
            return self.loss.train_metrics(facts) | (self.task_metrics(facts) if self.task_metrics else {})
        except KeyError as error:
            names = ", ".join(facts)
            problem = f"reads the fact {error} in train_metrics, which it does not return. There are: {names}."
            remedy = "Return it, summed over the rows, as the third value; or override train_metrics."
            raise refusal("loss", problem, remedy) from error

    def groups(self, progress: Progress) -> Generator[tuple[Position, Sequence[Batch]]]:
        """Yield groups from where a run stands, without end. Close the generator to end the preparing thread."""
        return self.data.groups(progress.position)


def build_parts(run: Run, settings: TrainParameters, *, progress: Progress, saved: Mapping[str, Any]) -> Parts:
    """Open the data and prepare the engine; the model itself is built when the engine starts or restores.

    Args:
        run: the checked run.
        settings: its own parameters.
        progress: where it stands.
        saved: metadata of the state to continue from; empty to begin.
    """
    seed = by_the_first(lambda: _seed(settings, saved))
    processor = _build_processor(run, settings)
    data = _build_data(run, settings, processor, seed=seed)
    same_plan = saved.get("plan") == plan_of(run)
    if saved:
        known = resuming.same_data(settings.data_dir, saved)
        if settings.lazy_load:
            data.digests |= known  # of shards that are not opened again
        elif same_plan:
            resuming.warn_of_splits(known, data.digests, total=int(saved["total"]))
        run = resuming.with_own_architecture(run, settings.save_dir)
    total = int(saved["total"]) if same_plan else _count_updates(settings, data, progress)
    loss = run.build("loss")
    _refuse_without_labels(run, settings, data, loss)
    labels = label_names(settings.data_dir) or []
    loss.refuse_labels(labels)
    if loss.takes_texts_for_alike and len(processor.text_fields) > 1 and data.labelled:
        tell_of_unread_labels(labels)
    tell_of_classes([*run.values.get("metrics", ()), settings.major_metric], loss, labels)
    texts: dict[str, str] = {}
    split = splitter(settings, processor, loss)
    build = _build_spmd_engine if settings.engine == SPMD else _build_engine
    engine = build(run, settings, seed=seed, loss=loss, total=total, split=split, texts=texts)
    held_out = _held_out(run, settings, data, processor, seed=seed)
    scored = data.parameters.path_of(settings.valid_subset)
    if slow := slow_average(settings.ema_decay, total):
        log.warning(slow)
    if is_higher_better(settings.major_metric) is None and "ascending_metric" not in run.origins:
        log.warning(
            f"ascending_metric is not set, so the step with the highest {settings.major_metric} counts as the best. If "
            "lower is better, set ascending_metric: false; else set it to true, and this warning is gone."
        )
    at_the_end = settings.eval_interval < 0
    if settings.tolerance is not None and (at_the_end or settings.tolerance < settings.eval_interval):
        effect = "the first evaluation without a better score ends the training"
        effect = "it never ends the training" if at_the_end else effect
        log.warning(
            f"tolerance: {settings.tolerance} counts updates, and eval_interval is {settings.eval_interval}: {effect}. "
            "To allow N evaluations without a better score, set it to N times eval_interval."
        )
    if settings.valid_subset in data.shards:
        log.warning(
            f"valid_subset: '{settings.valid_subset}' is trained on too, so its scores say nothing about new text. "
            "Set exclude_valid_from_train: true, or name another split."
        )
    return Parts(
        engine, loss, data, held_out, total, seed, texts, run.picked("task").train_metrics,
        scored={io.name(scored): found for found in [digest(scored)] if found},
    )  # fmt: skip


def _refuse_without_labels(run: Run, settings: TrainParameters, data: TrainingData, loss: TrainedLoss) -> None:
    """Raise ConfigError if the loss needs labels, but the samples have none."""
    if not loss.learns_labels:
        return
    held_out = data.parameters.path_of(settings.valid_subset)
    bare = [] if data.labelled else [("train_subset", data.shards[0])]
    bare += [] if "target" in Store.open(held_out) else [("valid_subset", settings.valid_subset)]
    remedy = "Check the columns and the delimiter of its raw file, and preprocess it again."
    faults = [
        Fault(key, f"no sample of '{split}' has a label, but loss '{run.values['loss']}' needs them.", remedy)
        for key, split in bare
    ]
    if faults:
        raise ConfigError(settings.data_dir, faults)


def tell_of_unread_labels(labels: Sequence[str]) -> None:
    """Warn of training rows with different labels, if the loss takes the texts of each for alike."""
    if len(labels) > 1:
        problem = f"takes the texts of every row for alike, whatever its label ('{labels[0]}', '{labels[1]}', ...)"
        log.warning(f"loss: {problem}. Train on rows that are; circle_siamese and sbert_nli learn from labels.")


def label_names(data_dir: str) -> list[str] | None:
    """Return the names of the classes; None if the data has none."""
    path = io.join(data_dir, "target_map.txt")
    return TargetMap.read(path).labels if io.isfile(path) else None


def _seed(settings: TrainParameters, saved: Mapping[str, Any]) -> int:
    if settings.seed is not None:
        return settings.seed
    return int(saved["seed"]) if "seed" in saved else secrets.randbelow(2**31 - 1) + 1


def splitter(settings: TrainParameters, processor: Any, loss: TrainedLoss) -> Split | None:
    """Return the function that splits a batch when memory runs out; None if batches must not be split.

    Raises:
        ConfigError: the loss compares the rows of a batch, so the losses of its parts would not add up to its own.
    """
    if not settings.auto_ga:
        return None
    if loss.compares_rows:
        problem = "is true, but this loss compares the rows of a batch: on parts it would be a different loss."
        remedy = "Set it to false, and lower batch_size, or max_len of the data, until a batch fits."
        raise refusal("auto_ga", problem, remedy)
    split: Split = processor.split
    return split


def plan_of(run: Run) -> dict[str, Any]:
    """Return what decides the number of updates, as plain values."""
    return {key: run.values.get(key) for key in PLAN_KEYS}


def _count_updates(settings: TrainParameters, data: TrainingData, progress: Progress) -> int:
    """Return the number of updates of the whole schedule: max_update or the end of max_epoch, whichever comes first.

    For a resumed run: the updates taken so far, plus those left in its epochs with the current group size.
    """
    limits = [settings.max_update] if settings.max_update is not None else []
    if settings.max_epoch is not None:
        done = data.total_groups(progress.epoch - 1) + min(progress.group, data.groups_in(progress.epoch))
        limits.append(progress.num_updates + data.total_groups(settings.max_epoch) - done)
    return min(limits)


def _build_processor(run: Run, settings: TrainParameters) -> Any:
    known = run.parameters("processor")
    refuse_altered(settings.data_dir, advice=AGAIN, but=(ARGS_FILE,))
    path = io.join(settings.data_dir, "vocab.txt")
    words = {"pad_word": known.pad_word, "unk_word": known.unk_word}
    return run.build("processor", vocabulary=Vocabulary.read(path, **words) if io.isfile(path) else None)


def _build_data(run: Run, settings: TrainParameters, processor: Any, *, seed: int) -> TrainingData:
    data: TrainingData = run.build(
        "dataset",
        processor=processor,
        seed=seed,
        sampler=run.build("sampler"),
        pad_multiple=_pad_multiple(settings),
        ranks=Ranks(*place_in_group()),
    )
    return data


def _held_out(run: Run, settings: TrainParameters, data: TrainingData, processor: Any, *, seed: int) -> HeldOut:
    store = Store.open(data.parameters.path_of(settings.valid_subset))
    drawn = data.sampler.held_out(store, batch_size=settings.batch_size, seed=seed)
    if settings.exact and drawn is not None:
        problem = f"is true, but the sampler '{run.values['sampler']}' decides which rows are scored together."
        raise refusal("exact", problem, "Leave it out.")
    positions = run.values.get("max_position_embeddings")
    split = EvaluationData(
        store,
        processor,
        batch_size=settings.batch_size,
        max_steps=settings.max_eval_steps,
        seed=seed,
        pad_multiple=exact_width(processor, positions) if settings.exact else _pad_multiple(settings),
        drawn=drawn,
        shuffled=run.picked("task").shuffles_held_out,
        alike=settings.exact,
    ).share(data.ranks, equally=settings.shares_weights)
    return lambda: (batch for _, batch in split)


def _pad_multiple(settings: TrainParameters) -> int:
    return 1 if settings.precision == "fp32" else WIDTH_OF_MIXED_PRECISION


def _task_maker(run: Run, loss: Any, texts: dict[str, str]) -> Callable[[], Any]:
    """Return a function that builds the task, and fills `texts` with the files that belong beside its checkpoints."""

    def make_task() -> Any:
        task = run.picked("task").built(run, loss)
        texts.update(task.model.resource_files())
        _tell_of_idle_keys(run, task)
        return task

    return make_task


def _tell_of_idle_keys(run: Run, task: Any) -> None:
    """Warn of keys that the config sets, but that change nothing in this training."""
    for key, why in task.idle_keys().items():
        for name in (key, f"student_{key}"):  # of a network that learns from a teacher
            if name in run.origins:
                log.warning(f"{name}: {why}", once=True)


def _build_spmd_engine(
    run: Run, settings: TrainParameters, *, seed: int, loss: Any, total: int, split: object, texts: dict[str, str]
) -> Engine:
    from xdpx.checkpoints.trusted import load_weights
    from xdpx.tasks.spmd.building import build_engine

    run = replace(run, values=aliases.with_files(run.values))
    schedule = run.build("lr_scheduler", total_steps=total)
    make_task = _task_maker(run, loss, texts)
    return build_engine(run, make_task, seed=seed, cuda=settings.cuda, read_weights=load_weights, schedule=schedule)


def _build_engine(
    run: Run,
    settings: TrainParameters,
    *,
    seed: int,
    loss: Any,
    total: int,
    split: Split | None,
    texts: dict[str, str],
) -> Engine:
    from xdpx.checkpoints.trusted import load_weights
    from xdpx.engines.pytorch.engine import PyTorchEngine
    from xdpx.optimizers.pytorch.building import of_run

    _refuse_hooks(run, settings, loss)
    run = replace(run, values=aliases.with_files(run.values))

    def make_optimizer(model: Any) -> Any:
        return of_run(run, model.parameter_groups(run.values["learning_rate"]), model=model)

    return PyTorchEngine(
        _task_maker(run, loss, texts),
        make_optimizer=make_optimizer,
        schedule=run.build("lr_scheduler", total_steps=total),
        options=engine_options(settings, seed, total),
        read_weights=load_weights,
        strategy=_strategy(settings),
        split=split,
    )


def _refuse_hooks(run: Run, settings: TrainParameters, loss: TrainedLoss) -> None:
    """Raise ConfigError if a task or loss hooks onto submodules of a compiled model, where hooks would not run."""
    for key, hooks in (("task", run.picked("task").hooks_model), ("loss", loss.hooks_model)):
        if settings.compile and hooks:
            problem = f"is true, but {key} '{run.values[key]}' hooks onto parts of the model, which are compiled away."
            raise refusal("compile", problem, "Leave it out.")


def _strategy(settings: TrainParameters) -> Strategy | None:
    """Return how training is distributed over the processes that have joined; None for a single process."""
    if settings.deepspeed_save_dir:
        log.warning("deepspeed_save_dir: nothing is written there: checkpoints are complete, and are in save_dir.")
    if place_in_group() == (1, 0):
        if settings.use_bmuf:
            log.warning("use_bmuf: there is one process, which trains without blocks. nproc sets how many there are.")
        if settings.shares_weights:
            log.warning(f"strategy {settings.strategy}: there is one process, so nothing is shared (nproc).")
        return None
    from xdpx.engines.pytorch import world
    from xdpx.engines.pytorch.strategies.blocks import BlockOptions, Blocks
    from xdpx.engines.pytorch.strategies.whole import Replicated

    here = world.current(use_cpu=settings.cuda is False)
    if settings.device_id != "auto":
        log.warning(f"device_id: there are {here.size} processes; each uses the device of its own index instead.")
    if settings.shares_weights:
        return _sharding(settings, here)
    if not settings.use_bmuf:
        return Replicated(here)
    options = BlockOptions(
        learning_rate=settings.block_lr,
        momentum=settings.block_momentum,
        interval=settings.global_sync_iter,
        warmup=settings.warmup_iterations,
        nesterov=settings.use_nbm,
        averages_optimizer=settings.average_sync,
    )
    return Blocks(here, options)


def _sharding(settings: TrainParameters, here: World) -> Strategy:
    """Return the sharding strategy that the settings select."""
    from xdpx.engines.pytorch.strategies.base import ShardOptions
    from xdpx.engines.pytorch.strategies.sharded import Sharded
    from xdpx.models.pytorch.base import Model

    stage = settings.deepspeed_zero_stage if settings.strategy == "deepspeed" else 3
    return Sharded(
        here,
        ShardOptions(reshard_after_forward=stage == 3),
        layers=lambda model: model.layers_apart() if isinstance(model, Model) else (),
        every_pass=settings.strategy == "deepspeed" and stage > 1,
    )


def engine_options(settings: TrainParameters, seed: int, total: int = 0) -> EngineOptions:
    """Return the engine's options; `total` is the number of updates of the whole schedule."""
    from xdpx.engines.pytorch.options import EngineOptions

    start = settings.swa_start
    return EngineOptions(
        device=_device_of(settings),
        precision=settings.precision,
        clip_norm=settings.clip_norm,
        nonfinite_steps=settings.nonfinite_steps,
        ema_decay=settings.ema_decay,
        swa_start=updates_of(start, total) if isinstance(start, float) else start,
        swa_interval=settings.swa_interval,
        seed=seed,
        init_scale=float(settings.fp16_init_scale),
        scale_window=max(1, CLEAN_BATCHES // (place_in_group()[0] * settings.update_freq)),
        scale_tolerance=settings.fp16_scale_tolerance,
        lowest_scale=float(settings.threshold_loss_scale or 0),
        min_loss_scale=settings.min_loss_scale,
        tf32=settings.tf32,
        deterministic=settings.deterministic,
        exact=settings.exact,
        compile="inductor" if settings.compile else None,
    )


def _device_of(settings: TrainParameters) -> str:
    """Return the name of the device that a process which trains alone uses."""
    import torch

    if settings.device_id == "auto":
        return "auto" if settings.cuda is None else "cuda" if settings.cuda else "cpu"
    if settings.cuda or (settings.cuda is None and torch.cuda.is_available()):
        return f"cuda:{settings.device_id}"
    why = "cuda is false" if settings.cuda is False else "this machine has no GPU"
    log.warning(f"device_id: names GPU {settings.device_id}, but {why}: training on the CPU.")
    return "cpu"
