"""`c4`: recipes for the C4 corpus, from 1B parameters on four chips to pipelined MLPerf GPT-3."""

from __future__ import annotations

from typing import Any

from xdpx.experiments.lm.model_params import TransformerLm, TransformerLmSpmdAdam, TransformerLmSpmdPipelineAdam
from xdpx.experiments.registry import experiment

ORIGINAL_BATCH = 1536
"""Examples per update that the steps of GPT-3's schedule refer to."""

LARGE_BATCH = 3584
"""Above this many examples per update, MLPerf's recipe uses the higher learning rate."""


class C4UnsupervisedDataset(TransformerLm):
    """Text to predict token by token, from paths given in fields; nothing is downloaded.

    Attributes:
        TRAIN_DATA: training text: files of raw text, array records, token arrays (.npy), or a Hugging Face data set.
        EVAL_DATA: evaluation text; None for no evaluation.
        VOCABULARY: file or name of the tokenizer; `characters` uses the characters of the training text.
        EOS_ID: id that ends each text; None for the one that the vocabulary names, else 1 if that is no part of a text.
        TEXT_FIELD: the field of a record that holds the text.
        TRAINING_SEED: seed of the order of the training text.
        EVAL_NUM_BATCHES: batches per evaluation; None for the whole text.
    """

    TRAIN_DATA: str | None = None
    EVAL_DATA: str | None = None
    VOCABULARY: str | None = None
    EOS_ID: int | None = None
    TEXT_FIELD: str = "text"
    TRAINING_SEED: int = 9876
    EVAL_NUM_BATCHES: int | None = None

    def datasets(self) -> list[Any]:
        """Return the training and evaluation inputs. Raises ConfigError if a path is not set."""
        from xdpx.experiments.lm.data import text_inputs

        return list(text_inputs(self))


@experiment
class LmCloudSpmdAdam(TransformerLmSpmdAdam, C4UnsupervisedDataset):
    """Two wide layers, sharded over data and mdl."""

    NUM_LAYERS = 2
    PERCORE_BATCH_SIZE = 16


@experiment
class LmCloudSpmdAdamLimitSteps(LmCloudSpmdAdam):
    """LmCloudSpmdAdam for 4,000 updates."""

    MAX_STEPS = 4000


class C4Recipe(C4UnsupervisedDataset):
    """The common settings of the models on C4."""

    VOCAB_SIZE = 32128
    ACTIVATION = "GELU"
    LOOKUP_STYLE = "matmul"
    CHECKPOINT_EVERY_N_STEPS = 1000
    SUMMARY_INTERVAL_STEPS = 10


@experiment
class C4SpmdAdam(C4Recipe, TransformerLmSpmdAdam):
    """1.3B parameters, layers unrolled."""

    NUM_LAYERS = 24
    NUM_HEADS: int | None = 32
    DIMS_PER_HEAD = 64
    CHECKPOINT_POLICY = "save_dot_for_mlperf_200b"


@experiment
class C4SpmdPipelineAdam(C4Recipe, TransformerLmSpmdPipelineAdam):
    """C4SpmdAdam in two pipeline stages."""

    NUM_LAYERS = 24
    NUM_HEADS: int | None = 32
    DIMS_PER_HEAD = 64
    CHECKPOINT_POLICY = "save_dot_for_mlperf_200b"


class C4SpmdAdamReplicas(C4SpmdAdam):
    """Layers scanned, computation in bfloat16: the base of the convergence examples."""

    VOCAB_SIZE = 32000
    NUM_HEADS: int | None = None
    DIMS_PER_HEAD = 128
    FPROP_DTYPE = "bfloat16"
    USE_REPEATED_LAYER = True
    CHECKPOINT_POLICY = "save_nothing"


@experiment
class C4Spmd1BAdam4Replicas(C4SpmdAdamReplicas):
    """1B parameters on v4-8: four chips."""

    ICI_MESH_SHAPE = (1, 4, 1)
    PERCORE_BATCH_SIZE = 32
    NUM_LAYERS = 13
    MODEL_DIMS = 2560


@experiment
class C4Spmd1BAdam4ReplicasLimitSteps(C4Spmd1BAdam4Replicas):
    """C4Spmd1BAdam4Replicas for 15,000 updates."""

    MAX_STEPS = 15_000


@experiment
class C4Spmd2BAdam4Replicas(C4SpmdAdamReplicas):
    """2B parameters on v4-8: four chips."""

    ICI_MESH_SHAPE = (1, 4, 1)
    PERCORE_BATCH_SIZE = 32
    NUM_LAYERS = 18
    MODEL_DIMS = 3072


@experiment
class C4Spmd16BAdam32Replicas(C4SpmdAdamReplicas):
    """16B parameters on v4-64: 32 chips."""

    ICI_MESH_SHAPE = (1, 16, 2)
    PERCORE_BATCH_SIZE = 16
    NUM_LAYERS = 36
    MODEL_DIMS = 6144


@experiment
class C4Spmd32BAdam64Replicas(C4SpmdAdamReplicas):
    """32B parameters on v4-128: 64 chips."""

    ICI_MESH_SHAPE = (1, 16, 4)
    PERCORE_BATCH_SIZE = 8
    NUM_LAYERS = 40
    MODEL_DIMS = 8192


class Gpt3Recipe(C4Recipe):
    """GPT-3 with 175B parameters and the hyperparameters of its paper."""

    NUM_LAYERS = 96
    MODEL_DIMS = 12288
    NUM_HEADS = 96
    DIMS_PER_HEAD = 128
    VOCAB_SIZE = 51200
    MAX_SEQ_LEN = 2048
    TRAINABLE_POSITION_EMB = True
    INIT_STD = 0.006
    LAYERNORM_EPSILON = 1e-5
    SOFTMAX_CAP_LOGITS = None
    ATTEN_LOGIT_CAP = None
    LEARNING_RATE: float | None = 6e-5
    WEIGHT_DECAY = 0.1
    ADAM_BETA2 = 0.95
    ADAM_EPSILON = 1e-8
    ADAM_CLIP_THRESHOLD = None
    CLIP_GRADIENT_NORM_TO_VALUE = 1.0
    LR_SCHEDULE = "linear_rampup_cosine_decay"
    LR_COS_WARMUP = 265
    LR_COS_DECAY_START = 266
    LR_COS_DECAY_END = 108_600
    CHECKPOINT_POLICY = "save_nothing"
    CHECKPOINT_EVERY_N_STEPS = 100
    EVAL_INTERVAL_STEPS = 100
    TARGET_LOG_PPLX = 2.69


class C4SpmdGpt3AdamOrgHP(Gpt3Recipe, TransformerLmSpmdAdam):
    """GPT-3 with scanned layers."""

    USE_REPEATED_LAYER = True


class C4SpmdPipelineGpt3AdamOrgHP(Gpt3Recipe, TransformerLmSpmdPipelineAdam):
    """GPT-3 with pipelined layers."""


class MLPerfRecipe(C4SpmdPipelineGpt3AdamOrgHP):
    """GPT-3 with the schedule of MLPerf, which depends on the batch size."""

    LEARNING_RATE: float | None = None

    def learning_rate(self) -> float:
        """Return LEARNING_RATE if it is set; else 2e-5, and 3e-5 above 3,584 examples per update."""
        if self.LEARNING_RATE is not None:
            return self.LEARNING_RATE
        return 2e-5 if self.global_batch() <= LARGE_BATCH else 3e-5

    def cosine_steps(self) -> tuple[int, int, int]:
        """Return the steps of the schedule, converted to updates of this batch size."""
        warmup = self.LR_COS_WARMUP * ORIGINAL_BATCH / self.global_batch()
        end = self.LR_COS_DECAY_END * ORIGINAL_BATCH / self.global_batch()
        return round(warmup), round(warmup) + 1, round(end)


@experiment
class C4SpmdGpt3AdamOrgHPBS1p5k1536Replicas(C4SpmdGpt3AdamOrgHP):
    """175B parameters on 1,536 chips."""

    ICI_MESH_SHAPE = (1, 64, 24)
    EVAL_INTERVAL_STEPS = 25


@experiment
class C4SpmdPipelineGpt3AdamOrgHPBS1p5k768Replicas(C4SpmdPipelineGpt3AdamOrgHP):
    """175B parameters in eight stages on 768 chips. Micro-batches of 2, as in Pax, where its own size is misspelt."""

    ICI_MESH_SHAPE = (8, 1, 8, 12)
    NUM_STAGES = 8
    MICROBATCH_SIZE = 2
    PERCORE_BATCH_SIZE = 2
    CHECKPOINT_EVERY_N_STEPS = 50
    EVAL_INTERVAL_STEPS = 25


@experiment
class C4SpmdPipelineGpt3AdamMLPerfHPBS1p5k768Replicas(MLPerfRecipe):
    """MLPerf GPT-3 with batch 1,536 on 768 chips."""

    ICI_MESH_SHAPE = (8, 1, 8, 12)
    NUM_STAGES = 8
    MICROBATCH_SIZE = 8
    PERCORE_BATCH_SIZE = 2
    CHECKPOINT_EVERY_N_STEPS = 32
    EVAL_INTERVAL_STEPS = 16


@experiment
class C4SpmdPipelineGpt3AdamMLPerfHPBS2k512Replicas(MLPerfRecipe):
    """MLPerf GPT-3 with batch 2,048 on 512 chips."""

    ICI_MESH_SHAPE = (8, 1, 8, 8)
    NUM_STAGES = 8
    MICROBATCH_SIZE = 8
    PERCORE_BATCH_SIZE = 4
    STREAM_IO = True
    CHECKPOINT_EVERY_N_STEPS = 24
    EVAL_INTERVAL_STEPS = 12


@experiment
class C4SpmdPipelineGpt3AdamMLPerfHPBS3k768Replicas(MLPerfRecipe):
    """MLPerf GPT-3 with batch 3,072 on 768 chips."""

    ICI_MESH_SHAPE = (4, 1, 16, 12)
    NUM_STAGES = 4
    MICROBATCH_SIZE = 16
    PERCORE_BATCH_SIZE = 4
    STREAM_IO = True
    CHECKPOINT_EVERY_N_STEPS = 16
    EVAL_INTERVAL_STEPS = 8


@experiment
class C4SpmdPipelineGpt3AdamMLPerfHPBS4k1024Replicas(MLPerfRecipe):
    """MLPerf GPT-3 with batch 4,096 on 1,024 chips."""

    ICI_MESH_SHAPE = (8, 1, 8, 16)
    NUM_STAGES = 8
    MICROBATCH_SIZE = 8
    PERCORE_BATCH_SIZE = 4
    STREAM_IO = True
    CHECKPOINT_EVERY_N_STEPS = 12
    EVAL_INTERVAL_STEPS = 6


@experiment
class C4SpmdPipelineGpt3AdamMLPerfHPBS8k1024Replicas(MLPerfRecipe):
    """MLPerf GPT-3 with batch 8,192 on 1,024 chips."""

    ICI_MESH_SHAPE = (4, 1, 16, 16)
    NUM_STAGES = 4
    MICROBATCH_SIZE = 16
    PERCORE_BATCH_SIZE = 8
    STREAM_IO = True
    CHECKPOINT_EVERY_N_STEPS = 6
    EVAL_INTERVAL_STEPS = 3


@experiment
class C4SpmdGpt3L16AdamOrgHP(C4SpmdGpt3AdamOrgHP):
    """16 layers of GPT-3 on 64 chips."""

    ICI_MESH_SHAPE = (1, 16, 4)
    PERCORE_BATCH_SIZE = 3
    NUM_LAYERS = 16
    VOCAB_SIZE = 50257
    FPROP_DTYPE = "bfloat16"
    EVAL_INTERVAL_STEPS = 25_000


class Gpt3XL(C4SpmdPipelineGpt3AdamOrgHP):
    """GPT3-XL: 2.9B parameters, pipelined, computation in bfloat16."""

    NUM_LAYERS = 24
    MODEL_DIMS = 3072
    NUM_HEADS = 24
    LEARNING_RATE = 2e-4
    FPROP_DTYPE = "bfloat16"
    CHECKPOINT_EVERY_N_STEPS = 200
    EVAL_INTERVAL_STEPS = 10


@experiment
class C4SpmdPipelineGpt3SmallAdam8Replicas(Gpt3XL):
    """GPT3-XL in two stages on v4-16: eight chips."""

    ICI_MESH_SHAPE = (2, 1, 2, 2)
    NUM_STAGES = 2
    MICROBATCH_SIZE = 8
    PERCORE_BATCH_SIZE = 64


@experiment
class C4SpmdPipelineGpt3SmallAdam64Replicas(Gpt3XL):
    """GPT3-XL in four stages on v4-128: 64 chips, with the global batch of the 8-chip variant (misspelt in Pax)."""

    ICI_MESH_SHAPE = (4, 1, 4, 4)
    NUM_STAGES = 4
    MICROBATCH_SIZE = 16
    PERCORE_BATCH_SIZE = 8
