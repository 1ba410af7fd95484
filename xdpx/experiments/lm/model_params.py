"""Base classes of the language model recipes: all their fields, declared with type and meaning.

This module holds only the fields; `xdpx.experiments.lm.building` makes templates from them on request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from xdpx.config.faults import ConfigError, Fault
from xdpx.config.hparams import BaseHParams
from xdpx.experiments.base_experiment import BaseExperiment
from xdpx.logger import log

Schedule = Literal["constant", "linear_rampup_exponential_decay", "linear_rampup_cosine_decay"]
Optimizer = Literal["adam", "adafactor", "sharded_adafactor", "lion", "sgd"]


def set_default_adam(
    task_p: BaseHParams,
    learning_rate: float,
    weight_decay: float,
    *,
    warmup_steps: int = 4000,
    decay_start: int = 4001,
    decay_end: int = 300_000,
) -> None:
    """Set a task's optimizer as Pax's function of this name does: Adam, clipped at 5, decaying to a tenth.

    Args:
        task_p: template of the task, changed in place.
        learning_rate: peak, after the warm-up.
        weight_decay: decoupled, multiplied by the learning rate.
        warmup_steps: length of the warm-up.
        decay_start: first step of the decay.
        decay_end: last step of the decay.
    """
    from xdpx.optimizers.spmd.optimizers import Adam

    rule = Adam.HParams(beta1=0.9, beta2=0.99, weight_decay=weight_decay, clip_gradient_norm_to_value=5.0)
    _set_default(task_p, rule, learning_rate, (warmup_steps, decay_start, decay_end))


def set_default_adafactor(
    task_p: BaseHParams, learning_rate: float, weight_decay: float, *, warmup_steps: int = 4000,
    decay_start: int = 4001, decay_end: int = 100_000, clip_gradient_norm_to_value: float = 5.0,
) -> None:  # fmt: skip
    """Set a task's optimizer as Pax's function of this name does: sharded Adafactor, decaying to a tenth.

    The global gradient norm is clipped. For the other arguments, see `set_default_adam`.
    """
    from xdpx.optimizers.spmd.adafactor import ShardedAdafactor

    rule = ShardedAdafactor.HParams(
        decay_method="adam",
        beta1=0.9,
        decay_adam=0.99,
        weight_decay=weight_decay,
        clip_gradient_norm_to_value=clip_gradient_norm_to_value,
    )
    _set_default(task_p, rule, learning_rate, (warmup_steps, decay_start, decay_end))


def _set_default(task_p: BaseHParams, rule: BaseHParams, learning_rate: float, steps: tuple[int, int, int]) -> None:
    from xdpx.optimizers.spmd.ramps import LinearRampupExponentialDecay

    warmup, start, end = steps
    ramp = LinearRampupExponentialDecay.HParams(
        warmup_steps=warmup, decay_start=start, decay_end=end, min_ratio=0.1, max=1.0
    )
    task_p.train.learner.loss_name = "total_loss"
    task_p.train.learner.optimizer = rule.set(learning_rate=learning_rate, lr_schedule=ramp)


SIZES = (
    "MODEL_DIMS", "HIDDEN_DIMS", "NUM_HEADS", "DIMS_PER_HEAD", "NUM_KV_HEADS", "VOCAB_SIZE", "MAX_SEQ_LEN",
    "TRAINABLE_PE_MAX_SEQ_LEN", "NUM_STAGES", "CIRCULAR_REPEAT", "MICROBATCH_SIZE", "NUM_MICROBATCHES",
)  # fmt: skip
"""Fields of a language model that are 1 or more, if they are not None."""


READ_WITH: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "LR_LRED_": ("LR_SCHEDULE", ("linear_rampup_exponential_decay",)),
    "LR_COS_": ("LR_SCHEDULE", ("linear_rampup_cosine_decay",)),
    "ADAM_BETA1": ("OPTIMIZER", ("adam", "sharded_adafactor")),
    "ADAM_": ("OPTIMIZER", ("adam",)),
    "ADAFACTOR_": ("OPTIMIZER", ("sharded_adafactor",)),
}
"""Start of the names of fields -> another field, and the values of that with which they are read."""


class TrainedExperiment(BaseExperiment):
    """The fields of all recipes on optimizing, saving and reporting.

    Attributes:
        PERCORE_BATCH_SIZE: examples per device and update; a fraction if devices share an example.
        MAX_STEPS: number of updates.
        RANDOM_SEED: seed of weights and dropout.
        LEARNING_RATE: multiplied by the schedule; None if the recipe derives it from the batch size.
        WEIGHT_DECAY: decoupled, multiplied by the learning rate.
        CLIP_GRADIENT_NORM_TO_VALUE: maximum global gradient norm; 0 for no clipping.
        LR_LRED_*, LR_COS_*: steps and ratios of the two schedules.
        ADAM_CLIP_THRESHOLD: maximum RMS of a variable's update; None for no limit.
        EMA_DECAY: decay of the averaged weights; None for no averaging.
        PROFILER_CAPTURE_STEP: number of updates after which a trace starts; None for no trace. It lasts at least
            PROFILER_NUM_STEPS updates and PROFILER_MIN_DURATION_SEC seconds.
    """

    PERCORE_BATCH_SIZE: float = 1
    MAX_STEPS: int = 10_000_000
    RANDOM_SEED: int = 1234
    OPTIMIZER: Optimizer = "adam"
    LEARNING_RATE: float | None = 1e-3
    WEIGHT_DECAY: float = 1e-3
    CLIP_GRADIENT_NORM_TO_VALUE: float = 5.0
    ADAM_BETA1: float = 0.9
    ADAM_BETA2: float = 0.99
    ADAM_EPSILON: float = 1e-6
    ADAM_CLIP_THRESHOLD: float | None = 1.0
    ADAFACTOR_DECAY: float = 0.99
    EMA_DECAY: float | None = None
    LR_SCHEDULE: Schedule = "linear_rampup_exponential_decay"
    LR_LRED_WARMUP: int = 4000
    LR_LRED_DECAY_START: int = 4001
    LR_LRED_DECAY_END: int = 300_000
    LR_LRED_MIN_RATIO: float = 0.1
    LR_COS_WARMUP: int = 4000
    LR_COS_DECAY_START: int = 4001
    LR_COS_DECAY_END: int = 300_000
    LR_COS_MIN_RATIO: float = 0.1
    CHECKPOINT_EVERY_N_STEPS: int = 5000
    CHECKPOINT_MAX_TO_KEEP: int = 10
    SUMMARY_INTERVAL_STEPS: int = 100
    EVAL_INTERVAL_STEPS: int = 100
    EVAL_SKIP_TRAIN: bool = False
    PROFILER_NUM_STEPS: int = 2
    PROFILER_MIN_DURATION_SEC: float = 1
    PROFILER_CAPTURE_STEP: int | None = None

    def validate(self) -> None:
        """Raise ConfigError if fields are inconsistent, and warn of those that were set, but are not read."""
        super().validate()
        own = [name for place in (self, type(self)) for name in vars(place)]
        for name in own:
            switch, values = next((read for start, read in READ_WITH.items() if name.startswith(start)), ("", ()))
            if switch and getattr(self, switch) not in values:
                problem = f"is set, but has no effect with {switch} '{getattr(self, switch)}'"
                log.warning(f"{type(self).__name__}.{name}: {problem}, only with {' or '.join(values)}.", once=True)

    def global_batch(self, num_devices: int | None = None) -> int:
        """Return the examples per update over all devices. Raises ConfigError if that is not a positive integer."""
        devices = self.mesh_shape(num_devices).num_devices
        whole = self.PERCORE_BATCH_SIZE * devices
        if whole < 1 or whole != int(whole):
            problem = f"is {self.PERCORE_BATCH_SIZE}: {whole} examples on {devices} devices."
            raise ConfigError(type(self).__name__, [Fault("PERCORE_BATCH_SIZE", problem, "Make it a whole number.")])
        return int(whole)

    def learning_rate(self) -> float:
        """Return the learning rate that the schedule multiplies. Raises ConfigError if it is not set."""
        if self.LEARNING_RATE is None:
            raise ConfigError(type(self).__name__, [Fault("LEARNING_RATE", "is not set.", "Set it, e.g. to 1e-3.")])
        return self.LEARNING_RATE

    def cosine_steps(self) -> tuple[int, int, int]:
        """Return (warm-up steps, first step, last step of the decay) of the cosine schedule, in updates."""
        return self.LR_COS_WARMUP, self.LR_COS_DECAY_START, self.LR_COS_DECAY_END


class ClassificationModelAdam(TrainedExperiment):
    """A stack of dense layers that classifies vectors.

    Attributes:
        INPUT_DIMS, HIDDEN_DIMS, NUM_CLASSES, NUM_LAYERS: widths and depth.
    """

    PERCORE_BATCH_SIZE: float = 16
    INPUT_DIMS: int = 1024
    HIDDEN_DIMS: int = 1024
    NUM_CLASSES: int = 8
    NUM_LAYERS: int = 8
    MAX_STEPS: int = 10
    CHECKPOINT_EVERY_N_STEPS: int = 5
    SUMMARY_INTERVAL_STEPS: int = 5

    def task(self) -> Any:
        """Return the template of the task."""
        from xdpx.experiments.lm.building import classification_task

        return classification_task(self)

    def input_specs(self) -> Mapping[str, tuple[tuple[int, ...], Any]]:
        """Return shape and dtype of each array of a global batch."""
        rows = self.global_batch()
        return {"inputs": ((rows, self.INPUT_DIMS), "float32"), "class_ids": ((rows,), "int32"),
                "eval_sample_weights": ((rows,), "float32")}  # fmt: skip


class TransformerLm(TrainedExperiment):
    """A decoder-only transformer language model, and how it is sharded.

    Attributes:
        HIDDEN_DIMS: inner width of a feed-forward layer; None for four times MODEL_DIMS.
        NUM_HEADS: None for MODEL_DIMS / DIMS_PER_HEAD.
        FPROP_DTYPE: computation dtype, `bfloat16` or a jnp type; weights are float32.
        ACTIVATION: name of the activation function.
        USE_REPEATED_LAYER: scan over the layers instead of unrolling them: compile time does not grow with depth.
        CHECKPOINT_POLICY: which activations are saved, so that the backward pass does not recompute them.
        SEPARATE_EMBEDDING: do not share weights between the input embedding and the softmax.
        LOOKUP_STYLE: how rows of the embedding are looked up, `index` or `matmul`.
        SOFTMAX_CAP_LOGITS, ATTEN_LOGIT_CAP: soft caps by tanh; None for no cap.
        PACKED_INPUT: several texts share a row, distinguished by segment_ids.
        INIT_STD: of Gaussian weights; None for the initialisers of the layers.
        NUM_STAGES: of a pipeline; None for no pipeline. CIRCULAR_REPEAT: rounds through the stages.
        MICROBATCH_SIZE, NUM_MICROBATCHES: how a pipeline splits the batch; set exactly one of them.
        STREAM_IO: exists in Pax, has no effect: inputs and outputs of a pipeline are always streamed over its stages.
        TARGET_LOG_PPLX: training ends when evaluation reaches it; None for no target.
    """

    NUM_LAYERS: int = 10
    MODEL_DIMS: int = 2048
    HIDDEN_DIMS: int | None = None
    NUM_HEADS: int | None = None
    DIMS_PER_HEAD: int = 128
    NUM_KV_HEADS: int | None = None
    VOCAB_SIZE: int = 32000
    MAX_SEQ_LEN: int = 1024
    FPROP_DTYPE: Any = "float32"
    ACTIVATION: Literal["RELU", "GELU", "SILU", "SQUARED_RELU"] = "RELU"
    USE_GATED_ACTIVATION: bool = False
    USE_REPEATED_LAYER: bool = False
    CHECKPOINT_POLICY: str = "save_nothing"
    DROPOUT_PROB: float = 0.0
    NORM_POLICY: Literal["pre", "post", "primer_hybrid"] = "pre"
    LAYERNORM_EPSILON: float = 1e-6
    COMBINE_QKV: bool = True
    USE_BIAS: bool = True
    USE_ATTENTION_BIAS: bool = False
    SEPARATE_EMBEDDING: bool = False
    LOOKUP_STYLE: Literal["index", "matmul"] = "index"
    TRAINABLE_POSITION_EMB: bool = False
    TRAINABLE_PE_MAX_SEQ_LEN: int = 16 * 1024
    USE_ROTARY_POSITION_EMB: bool = False
    RELATIVE_BIAS: bool = False
    PACKED_INPUT: bool = True
    SOFTMAX_CAP_LOGITS: float | None = 30.0
    ATTEN_LOGIT_CAP: float | None = 50.0
    INIT_STD: float | None = None
    NUM_STAGES: int | None = None
    CIRCULAR_REPEAT: int = 1
    MICROBATCH_SIZE: int | None = None
    NUM_MICROBATCHES: int | None = None
    STREAM_IO: bool = False
    TRAINING_OPTIMIZED_SHARDING: bool = True
    TARGET_LOG_PPLX: float | None = None

    @property
    def hidden_dims(self) -> int:
        """Inner width of a feed-forward layer."""
        return 4 * self.MODEL_DIMS if self.HIDDEN_DIMS is None else self.HIDDEN_DIMS

    @property
    def num_heads(self) -> int:
        """Attention heads per layer."""
        return self.MODEL_DIMS // self.DIMS_PER_HEAD if self.NUM_HEADS is None else self.NUM_HEADS

    def num_microbatches(self, num_devices: int | None = None) -> int:
        """Return the number of micro-batches per batch; 1 without a pipeline."""
        if self.NUM_STAGES is None:
            return 1
        if self.MICROBATCH_SIZE is not None:
            return self.global_batch(num_devices) // self.MICROBATCH_SIZE
        return self.NUM_MICROBATCHES or 1

    def validate(self) -> None:
        """Raise ConfigError with all faults of the fields."""
        super().validate()
        given = {name: getattr(self, name) for name in SIZES}
        faults = [
            Fault(name, f"is {size}.", "Use 1 or more.")
            for name, size in given.items()
            if size is not None and size < 1
        ]  # what follows divides by them
        # The other checks divide by these sizes.
        faults = faults or [*self._faults_of_sizes(), *(self._faults_of_pipeline() if self.NUM_STAGES else [])]
        if faults:
            raise ConfigError(type(self).__name__, faults)

    def _faults_of_sizes(self) -> list[Fault]:
        faults = []
        if self.USE_ROTARY_POSITION_EMB and self.TRAINABLE_POSITION_EMB:
            problem = "contradicts USE_ROTARY_POSITION_EMB."
            faults.append(Fault("TRAINABLE_POSITION_EMB", problem, "Choose one kind of position embedding."))
        elif self.RELATIVE_BIAS and self.TRAINABLE_POSITION_EMB:
            problem = "contradicts RELATIVE_BIAS, with which the input has no position embedding."
            faults.append(Fault("TRAINABLE_POSITION_EMB", problem, "Choose one kind of position embedding."))
        if self.NUM_HEADS is None and self.MODEL_DIMS % self.DIMS_PER_HEAD:
            problem = f"is {self.DIMS_PER_HEAD}, which does not divide MODEL_DIMS {self.MODEL_DIMS}."
            faults.append(Fault("DIMS_PER_HEAD", problem, "Set NUM_HEADS, or another width."))
        if self.TRAINABLE_POSITION_EMB and self.MAX_SEQ_LEN > self.TRAINABLE_PE_MAX_SEQ_LEN:
            problem = f"is {self.MAX_SEQ_LEN}, but there are {self.TRAINABLE_PE_MAX_SEQ_LEN} trainable positions."
            faults.append(Fault("MAX_SEQ_LEN", problem, "Raise TRAINABLE_PE_MAX_SEQ_LEN."))
        return faults

    def _faults_of_pipeline(self) -> list[Fault]:
        stages, batch = self.NUM_STAGES or 1, self.global_batch()
        chunks = stages * self.CIRCULAR_REPEAT
        faults = []
        if self.NUM_LAYERS % chunks:
            problem = f"is {self.NUM_LAYERS}, which {stages} stages x {self.CIRCULAR_REPEAT} rounds do not divide."
            faults.append(Fault("NUM_LAYERS", problem, f"Use a multiple of {chunks}."))
        if (self.MICROBATCH_SIZE is None) == (self.NUM_MICROBATCHES is None):
            remedy = "Set MICROBATCH_SIZE or NUM_MICROBATCHES, not both."
            faults.append(Fault("MICROBATCH_SIZE", "does not by itself say how to split the batch.", remedy))
        elif batch % (self.MICROBATCH_SIZE or self.NUM_MICROBATCHES or 1):
            which = "MICROBATCH_SIZE" if self.MICROBATCH_SIZE else "NUM_MICROBATCHES"
            problem = f"is {getattr(self, which)}, which does not divide the batch of {batch}."
            faults.append(Fault(which, problem, "Choose a divisor of the global batch."))
        if self.mesh_shape().size("stage") != stages:
            problem = f"is {stages}, the mesh has {self.mesh_shape().size('stage')} along stage."
            faults.append(Fault("NUM_STAGES", problem, "Make them equal."))
        return faults

    def input_specs(self) -> Mapping[str, tuple[tuple[int, ...], Any]]:
        """Return shape and dtype of each array of a global batch."""
        rows = self.global_batch()
        ids, numbers = ((rows, self.MAX_SEQ_LEN), "int32"), ((rows, self.MAX_SEQ_LEN), "float32")
        return {"ids": ids, "labels": ids, "weights": numbers, "paddings": numbers, "segment_ids": ids,
                "segment_pos": ids, "eval_sample_weights": ((rows,), "float32")}  # fmt: skip

    def rules(self) -> Any:
        """Return the rules from logical axes to mesh axes."""
        from xdpx.experiments.lm.building import language_rules

        return language_rules(self)

    def task(self) -> Any:
        """Return the template of the task."""
        from xdpx.experiments.lm.building import language_task

        return language_task(self)

    def counted_task(self) -> Any:
        """Return the same model with its layers scanned: a pipeline does useless work while it fills and drains."""
        from xdpx.experiments.lm.building import language_task

        return language_task(self, in_stages=False)


class TransformerLmPmapAdam(TransformerLm):
    """Plain data parallelism, weights replicated on all devices; attention logits are capped, output logits are not."""

    PERCORE_BATCH_SIZE: float = 16
    NUM_LAYERS: int = 32
    MODEL_DIMS: int = 1024
    DIMS_PER_HEAD: int = 64
    SOFTMAX_CAP_LOGITS: float | None = None


class TransformerLmSpmdAdafactor(TransformerLm):
    """Weights sharded over data and mdl, trained with sharded Adafactor."""

    ICI_MESH_SHAPE: Sequence[int] = (1, 4, 2)
    OPTIMIZER: Optimizer = "sharded_adafactor"
    LEARNING_RATE: float | None = 2.5e-4
    LR_LRED_DECAY_END: int = 100_000


class TransformerLmSpmdAdam(TransformerLm):
    """Weights sharded over data and mdl, trained with Adam."""

    ICI_MESH_SHAPE: Sequence[int] = (1, 4, 2)


class TransformerLmSpmdPipelineAdafactor(TransformerLmSpmdAdafactor):
    """Layers in pipeline stages along a fourth mesh axis, trained with sharded Adafactor."""

    ICI_MESH_SHAPE: Sequence[int] = (2, 1, 2, 2)
    NUM_STAGES: int | None = 2
    MICROBATCH_SIZE: int | None = 2


class TransformerLmSpmdPipelineAdam(TransformerLmSpmdAdam):
    """Layers in pipeline stages along a fourth mesh axis, trained with Adam."""

    ICI_MESH_SHAPE: Sequence[int] = (2, 1, 2, 2)
    NUM_STAGES: int | None = 2
    MICROBATCH_SIZE: int | None = 2
