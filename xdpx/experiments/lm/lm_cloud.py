"""`lm_cloud`: from toy size to a trillion parameters, on synthetic tokens: tests of meshes, not of learning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from xdpx.experiments.lm.model_params import ClassificationModelAdam, TransformerLm, TransformerLmPmapAdam
from xdpx.experiments.registry import experiment


class SyntheticDataset(TransformerLm):
    """Synthetic tokens for training and evaluation. With the default pattern, accuracy is 1 almost at once.

    Attributes:
        EVAL_NUM_BATCHES: batches per evaluation.
        SYNTHETIC_PATTERN: `constant`; `cycle` can be learned, `random` cannot.
    """

    EVAL_NUM_BATCHES: int = 1
    SYNTHETIC_PATTERN: Literal["constant", "cycle", "random"] = "constant"

    def datasets(self) -> list[Any]:
        """Return a training and an evaluation input."""
        from xdpx.experiments.lm.data import synthetic_inputs

        return list(synthetic_inputs(self))


@experiment
class LargeMlp(ClassificationModelAdam):
    """Wide dense layers."""

    ICI_MESH_SHAPE = (8, 1, 1)
    INPUT_DIMS = 4096
    HIDDEN_DIMS = 7168

    def datasets(self) -> list[Any]:
        """Return inputs of random vectors with classes that can be learned."""
        from xdpx.experiments.lm.data import vector_inputs

        return list(vector_inputs(self))


@experiment
class SmallMlp(LargeMlp):
    """Narrow dense layers."""

    INPUT_DIMS = 1024
    HIDDEN_DIMS = 1024


@experiment
class LmCloudTransformerAdam(SyntheticDataset, TransformerLmPmapAdam):
    """0.44B parameters, replicated on every device."""

    PLAN_DEVICES = 8


@experiment
class LmCloudTransformerAdamTest(LmCloudTransformerAdam):
    """LmCloudTransformerAdam with two layers."""

    NUM_LAYERS = 2


@experiment
class LmCloudTransformerAdamLimitSteps(LmCloudTransformerAdam):
    """0.16B parameters for 2,000 updates."""

    NUM_LAYERS = 10
    MAX_STEPS = 2000


class LmCloudSpmd(SyntheticDataset):
    """The common settings of the sharded recipes."""

    ICI_MESH_SHAPE: Sequence[int] = (1, 4, 1)
    LEARNING_RATE = 2.5e-4
    NUM_LAYERS = 10
    ACTIVATION = "GELU"
    FPROP_DTYPE = "bfloat16"
    USE_REPEATED_LAYER = True
    LOOKUP_STYLE = "matmul"


@experiment
class LmCloudSpmdTest(LmCloudSpmd):
    """Two narrow layers on one device."""

    ICI_MESH_SHAPE = (1, 1, 1)
    PERCORE_BATCH_SIZE = 4
    NUM_LAYERS = 2
    MODEL_DIMS = 64
    DIMS_PER_HEAD = 8


@experiment
class LmCloudSpmd2B(LmCloudSpmd):
    """2B parameters on v4-8: four chips, with weights sharded over them."""

    PERCORE_BATCH_SIZE = 8
    NUM_LAYERS = 18
    MODEL_DIMS = 3072


@experiment
class LmCloudSpmd2BLimitSteps(LmCloudSpmd2B):
    """LmCloudSpmd2B for 300 updates."""

    MAX_STEPS = 300


@experiment
class LmCloudSpmd32B(LmCloudSpmd):
    """32B parameters on v4-128: 64 chips."""

    ICI_MESH_SHAPE = (1, 16, 4)
    PERCORE_BATCH_SIZE = 8
    NUM_LAYERS = 40
    MODEL_DIMS = 8192
    CHECKPOINT_POLICY = "save_context_and_out_proj"


@experiment
class LmCloudSpmd64B(LmCloudSpmd):
    """64B parameters on v4-256: 128 chips."""

    ICI_MESH_SHAPE = (1, 16, 8)
    PERCORE_BATCH_SIZE = 4
    NUM_LAYERS = 51
    MODEL_DIMS = 10240
    CHECKPOINT_POLICY = "save_context_and_out_proj"


@experiment
class LmCloudSpmd128B(LmCloudSpmd):
    """128B parameters on v4-512: 256 chips."""

    ICI_MESH_SHAPE = (1, 64, 4)
    PERCORE_BATCH_SIZE = 4
    NUM_LAYERS = 71
    MODEL_DIMS = 12288


@experiment
class LmCloudSpmd256B(LmCloudSpmd):
    """256B parameters on v4-1024: 512 chips."""

    ICI_MESH_SHAPE = (1, 64, 8)
    PERCORE_BATCH_SIZE = 4
    NUM_LAYERS = 80
    MODEL_DIMS = 16384


@experiment
class LmCloudSpmd512B(LmCloudSpmd):
    """512B parameters on v4-2048: 1,024 chips."""

    ICI_MESH_SHAPE = (1, 64, 16)
    PERCORE_BATCH_SIZE = 4
    NUM_LAYERS = 102
    MODEL_DIMS = 20480


@experiment
class LmCloudSpmd1024B(LmCloudSpmd):
    """A trillion parameters on v4-4096: 2,048 chips."""

    ICI_MESH_SHAPE = (1, 256, 8)
    PERCORE_BATCH_SIZE = 2
    NUM_LAYERS = 142
    MODEL_DIMS = 24576


class LmCloudSpmdPipeline(LmCloudSpmd):
    """The common settings of the pipelined recipes."""

    USE_REPEATED_LAYER = False


@experiment
class LmCloudSpmdPipeline9B(LmCloudSpmdPipeline):
    """9B parameters in 16 stages."""

    ICI_MESH_SHAPE = (16, 4, 1, 1)
    NUM_STAGES = 16
    MICROBATCH_SIZE = 4
    PERCORE_BATCH_SIZE = 8
    NUM_LAYERS = 48
    MODEL_DIMS = 4096
    FPROP_DTYPE = "float32"


@experiment
class LmCloudSpmdPipeline175B(LmCloudSpmdPipeline):
    """175B parameters: eight slices with one stage each; devices share examples."""

    ICI_MESH_SHAPE = (1, 1, 1, 16)
    DCN_MESH_SHAPE = (8, 1, 1, 1)
    NUM_STAGES = 8
    MICROBATCH_SIZE = 2
    PERCORE_BATCH_SIZE = 0.75
    NUM_LAYERS = 96
    MODEL_DIMS = 12288
    MAX_SEQ_LEN = 2048


@experiment
class LmCloudSpmdMultislice2B(LmCloudSpmd2B):
    """2B parameters on two slices, each with a full copy of the weights."""

    DCN_MESH_SHAPE = (2, 1, 1)
    PERCORE_BATCH_SIZE = 16


@experiment
class LmCloudSpmdPipelineMultislice2B(LmCloudSpmdPipeline):
    """2B parameters, half of the layers on each of two slices."""

    ICI_MESH_SHAPE = (1, 4, 1, 1)
    DCN_MESH_SHAPE = (2, 1, 1, 1)
    NUM_STAGES = 2
    MICROBATCH_SIZE = 4
    STREAM_IO = True
    PERCORE_BATCH_SIZE = 16
    NUM_LAYERS = 18
    MODEL_DIMS = 3072


@experiment
class LmCloudSpmdPipelineMultislice2BCircular(LmCloudSpmdPipelineMultislice2B):
    """LmCloudSpmdPipelineMultislice2B with a circular pipeline: each slice runs three chunks of the layers."""

    CIRCULAR_REPEAT = 3
    MICROBATCH_SIZE = 8
