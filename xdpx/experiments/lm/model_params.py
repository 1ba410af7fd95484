"""The recipes that the language model experiments derive from: every field of them, declared with type and meaning.

The fields alone stand here; `xdpx.experiments.lm.building` makes templates of them when they are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from xdpx.config.faults import ConfigError, Fault
from xdpx.config.hparams import BaseHParams
from xdpx.experiments.base_experiment import BaseExperiment

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
    """Set the optimizer of a task to the Adam of Pax's function of this name: clipped at 5, decaying to a tenth.

    Args:
        task_p: template of the task.
        learning_rate: at the top of the ramp.
        weight_decay: decoupled, times the learning rate.
        warmup_steps: of the ramp.
        decay_start: first step of the decay.
        decay_end: last one.
    """
    from xdpx.optimizers.spmd.optimizers import Adam

    rule = Adam.HParams(beta1=0.9, beta2=0.99, weight_decay=weight_decay, clip_gradient_norm_to_value=5.0)
    _set_default(task_p, rule, learning_rate, (warmup_steps, decay_start, decay_end))


def set_default_adafactor(
    task_p: BaseHParams, learning_rate: float, weight_decay: float, *, warmup_steps: int = 4000,
    decay_start: int = 4001, decay_end: int = 100_000, clip_gradient_norm_to_value: float = 5.0,
) -> None:  # fmt: skip
    """Set the optimizer of a task to the sharded Adafactor of Pax's function of this name.

    The norm of all gradients together is clipped; what else it takes is told at `set_default_adam`.
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


class TrainedExperiment(BaseExperiment):
    """How an experiment learns, saves and reports: what every recipe shares.

    Attributes:
        PERCORE_BATCH_SIZE: examples per device and update; a fraction when devices share an example.
        MAX_STEPS: updates to take.
        RANDOM_SEED: decides weights and dropout.
        LEARNING_RATE: what the schedule multiplies; None where the recipe follows the batch.
        WEIGHT_DECAY: decoupled, times the learning rate.
        CLIP_GRADIENT_NORM_TO_VALUE: largest norm of all gradients together; 0 for none.
        LR_LRED_*, LR_COS_*: steps and ratios of the two schedules.
        ADAM_CLIP_THRESHOLD: largest RMS of one variable's update; None for none.
        EMA_DECAY: of the averaged weights; None keeps none.
        PROFILER_CAPTURE_STEP: update before which a trace is begun; None for none. It is PROFILER_NUM_STEPS updates and
            PROFILER_MIN_DURATION_SEC seconds long, at least.
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

    def global_batch(self, num_devices: int | None = None) -> int:
        """Return the examples of one update over all devices. Raises ConfigError when they are no whole number."""
        devices = self.mesh_shape(num_devices).num_devices
        whole = self.PERCORE_BATCH_SIZE * devices
        if whole < 1 or whole != int(whole):
            problem = f"is {self.PERCORE_BATCH_SIZE}: {whole} examples on {devices} devices."
            raise ConfigError(type(self).__name__, [Fault("PERCORE_BATCH_SIZE", problem, "Make it a whole number.")])
        return int(whole)

    def learning_rate(self) -> float:
        """Return the learning rate that the schedule multiplies. Raises ConfigError when the recipe has none."""
        if self.LEARNING_RATE is None:
            raise ConfigError(type(self).__name__, [Fault("LEARNING_RATE", "is not set.", "Set it, e.g. to 1e-3.")])
        return self.LEARNING_RATE

    def cosine_steps(self) -> tuple[int, int, int]:
        """Return (warm-up, start of the decay, end of it) of the cosine schedule, in updates."""
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
        """Return the arrays of one batch over all processes."""
        rows = self.global_batch()
        return {"inputs": ((rows, self.INPUT_DIMS), "float32"), "class_ids": ((rows,), "int32"),
                "eval_sample_weights": ((rows,), "float32")}  # fmt: skip


class TransformerLm(TrainedExperiment):
    """A decoder of a transformer that predicts the next token, and how it lies on the mesh.

    Attributes:
        HIDDEN_DIMS: width between the two products of a feed-forward layer; None for four times MODEL_DIMS.
        NUM_HEADS: None for MODEL_DIMS / DIMS_PER_HEAD.
        FPROP_DTYPE: in which the passes compute, `bfloat16` or a jnp type; weights are float32.
        ACTIVATION: by name.
        USE_REPEATED_LAYER: scan over the layers instead of unrolling them: compiles in constant time.
        CHECKPOINT_POLICY: what the backward pass need not compute again.
        SEPARATE_EMBEDDING: input embedding and softmax have weights of their own.
        LOOKUP_STYLE: how rows of the embedding are taken, `index` or `matmul`.
        SOFTMAX_CAP_LOGITS, ATTEN_LOGIT_CAP: soft caps by tanh; None for none.
        PACKED_INPUT: several texts share a row, told apart by segment_ids.
        INIT_STD: of Gaussian weights; None for the initialisers of the layers.
        NUM_STAGES: of a pipeline; None for none. CIRCULAR_REPEAT: rounds through the stages.
        MICROBATCH_SIZE, NUM_MICROBATCHES: one of both says how a pipeline cuts the batch.
        STREAM_IO: of Pax, without effect: the inputs and outputs of a pipeline always stream over its stages.
        TARGET_LOG_PPLX: training ends when evaluation reaches it; None for never.
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
        """Width between the products of a feed-forward layer."""
        return 4 * self.MODEL_DIMS if self.HIDDEN_DIMS is None else self.HIDDEN_DIMS

    @property
    def num_heads(self) -> int:
        """Attention heads of a layer."""
        return self.MODEL_DIMS // self.DIMS_PER_HEAD if self.NUM_HEADS is None else self.NUM_HEADS

    def num_microbatches(self, num_devices: int | None = None) -> int:
        """Return into how many parts a pipeline cuts the batch; 1 without a pipeline."""
        if self.NUM_STAGES is None:
            return 1
        if self.MICROBATCH_SIZE is not None:
            return self.global_batch(num_devices) // self.MICROBATCH_SIZE
        return self.NUM_MICROBATCHES or 1

    def validate(self) -> None:
        """Raise ConfigError with every fault of the fields together."""
        super().validate()
        faults = [*self._faults_of_sizes(), *(self._faults_of_pipeline() if self.NUM_STAGES else [])]
        if faults:
            raise ConfigError(type(self).__name__, faults)

    def _faults_of_sizes(self) -> list[Fault]:
        faults = []
        if self.USE_ROTARY_POSITION_EMB and self.TRAINABLE_POSITION_EMB:
            problem = "goes not with USE_ROTARY_POSITION_EMB."
            faults.append(Fault("TRAINABLE_POSITION_EMB", problem, "Choose one kind of positions."))
        if self.NUM_HEADS is None and self.MODEL_DIMS % self.DIMS_PER_HEAD:
            problem = f"is {self.DIMS_PER_HEAD}, which does not divide MODEL_DIMS {self.MODEL_DIMS}."
            faults.append(Fault("DIMS_PER_HEAD", problem, "Set NUM_HEADS, or another width."))
        if self.TRAINABLE_POSITION_EMB and self.MAX_SEQ_LEN > self.TRAINABLE_PE_MAX_SEQ_LEN:
            problem = f"is {self.MAX_SEQ_LEN}, there are {self.TRAINABLE_PE_MAX_SEQ_LEN} positions to train."
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
            remedy = "Set MICROBATCH_SIZE or NUM_MICROBATCHES, one of both."
            faults.append(Fault("MICROBATCH_SIZE", "does not say alone how to cut the batch.", remedy))
        elif batch % (self.MICROBATCH_SIZE or self.NUM_MICROBATCHES or 1):
            which = "MICROBATCH_SIZE" if self.MICROBATCH_SIZE else "NUM_MICROBATCHES"
            problem = f"is {getattr(self, which)}, which does not divide the batch of {batch}."
            faults.append(Fault(which, problem, "Choose a divisor of the global batch."))
        if self.mesh_shape().size("stage") != stages:
            problem = f"is {stages}, the mesh has {self.mesh_shape().size('stage')} along stage."
            faults.append(Fault("NUM_STAGES", problem, "Make both the same."))
        return faults

    def input_specs(self) -> Mapping[str, tuple[tuple[int, ...], Any]]:
        """Return the arrays of one batch over all processes."""
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
        """Return the same model with its layers repeated: a pipeline computes for nothing while it fills and drains."""
        from xdpx.experiments.lm.building import language_task

        return language_task(self, in_stages=False)


class TransformerLmPmapAdam(TransformerLm):
    """Plain data parallelism over all devices with whole weights on each; attention capped, logits not."""

    PERCORE_BATCH_SIZE: float = 16
    NUM_LAYERS: int = 32
    MODEL_DIMS: int = 1024
    DIMS_PER_HEAD: int = 64
    SOFTMAX_CAP_LOGITS: float | None = None


class TransformerLmSpmdAdafactor(TransformerLm):
    """Weights split over data and mdl; what the sharded recipes start from."""

    ICI_MESH_SHAPE: Sequence[int] = (1, 4, 2)
    OPTIMIZER: Optimizer = "sharded_adafactor"
    LEARNING_RATE: float | None = 2.5e-4
    LR_LRED_DECAY_END: int = 100_000


class TransformerLmSpmdAdam(TransformerLm):
    """The same with Adam."""

    ICI_MESH_SHAPE: Sequence[int] = (1, 4, 2)


class TransformerLmSpmdPipelineAdafactor(TransformerLmSpmdAdafactor):
    """Layers in stages along a fourth mesh axis."""

    ICI_MESH_SHAPE: Sequence[int] = (2, 1, 2, 2)
    NUM_STAGES: int | None = 2
    MICROBATCH_SIZE: int | None = 2


class TransformerLmSpmdPipelineAdam(TransformerLmSpmdAdam):
    """Layers in stages along a fourth mesh axis, with Adam."""

    ICI_MESH_SHAPE: Sequence[int] = (2, 1, 2, 2)
    NUM_STAGES: int | None = 2
    MICROBATCH_SIZE: int | None = 2
