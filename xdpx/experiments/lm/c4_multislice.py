"""`c4_multislice`: MaxText's sizes on one, two and four slices; weights are sharded within a slice, batches across."""

from __future__ import annotations

from xdpx.experiments.lm.c4 import C4SpmdAdamReplicas, C4SpmdGpt3AdamOrgHP
from xdpx.experiments.registry import experiment


@experiment
class C4Spmd22BAdamMaxText(C4SpmdAdamReplicas):
    """22B parameters, sharded over data and mdl on eight chips."""

    ICI_MESH_SHAPE = (1, 4, 2)
    PERCORE_BATCH_SIZE = 16
    NUM_LAYERS = 48
    MODEL_DIMS = 6144
    NUM_HEADS = 24
    DIMS_PER_HEAD = 256
    VOCAB_SIZE = 32768


@experiment
class C4Spmd22BAdam1xv4_128(C4Spmd22BAdamMaxText):
    """22B parameters on one v4-128: 64 chips."""

    ICI_MESH_SHAPE = (1, 64, 1)


@experiment
class C4Spmd22BAdam2xv4_128(C4Spmd22BAdam1xv4_128):
    """22B parameters on two v4-128."""

    DCN_MESH_SHAPE = (2, 1, 1)


@experiment
class C4Spmd22BAdam4xv4_128(C4Spmd22BAdam1xv4_128):
    """22B parameters on four v4-128."""

    DCN_MESH_SHAPE = (4, 1, 1)


@experiment
class C4Spmd22BAdam1xv4_128LimitSteps(C4Spmd22BAdam1xv4_128):
    """22B parameters on one v4-128, for 300 updates."""

    MAX_STEPS = 300


@experiment
class C4Spmd22BAdam2xv4_128LimitSteps(C4Spmd22BAdam2xv4_128):
    """22B parameters on two v4-128, for 300 updates."""

    MAX_STEPS = 300


@experiment
class C4Spmd22BAdam4xv4_128LimitSteps(C4Spmd22BAdam4xv4_128):
    """22B parameters on four v4-128, for 300 updates."""

    MAX_STEPS = 300


@experiment
class C4Spmd22BAdam1xv4_384(C4Spmd22BAdamMaxText):
    """Fewer and wider layers on one v4-384: 192 chips."""

    ICI_MESH_SHAPE = (1, 192, 1)
    PERCORE_BATCH_SIZE = 10
    NUM_LAYERS = 24
    MODEL_DIMS = 9216
    DIMS_PER_HEAD = 384


@experiment
class C4Spmd22BAdam2xv4_384(C4Spmd22BAdam1xv4_384):
    """The model of C4Spmd22BAdam1xv4_384 on two v4-384."""

    DCN_MESH_SHAPE = (2, 1, 1)


@experiment
class C4Spmd22BAdam1xv4_8(C4Spmd22BAdamMaxText):
    """The same recipe with 0.9B parameters, on one v4-8: four chips."""

    ICI_MESH_SHAPE = (1, 4, 1)
    NUM_LAYERS = 16
    MODEL_DIMS = 2048
    NUM_HEADS = 8


@experiment
class C4Spmd22BAdam2xv4_8(C4Spmd22BAdam1xv4_8):
    """0.9B parameters on two v4-8."""

    DCN_MESH_SHAPE = (2, 1, 1)


@experiment
class C4Spmd22BAdam4xv4_8(C4Spmd22BAdam1xv4_8):
    """0.9B parameters on four v4-8."""

    DCN_MESH_SHAPE = (4, 1, 1)


@experiment
class C4Spmd22BAdam1xv4_8LimitSteps(C4Spmd22BAdam1xv4_8):
    """0.9B parameters on one v4-8, for 300 updates."""

    MAX_STEPS = 300


@experiment
class C4Spmd22BAdam2xv4_8LimitSteps(C4Spmd22BAdam2xv4_8):
    """0.9B parameters on two v4-8, for 300 updates."""

    MAX_STEPS = 300


@experiment
class C4Spmd22BAdam4xv4_8LimitSteps(C4Spmd22BAdam4xv4_8):
    """0.9B parameters on four v4-8, for 300 updates."""

    MAX_STEPS = 300


@experiment
class C4SpmdGpt3AdamDataParallel2x16x16(C4SpmdGpt3AdamOrgHP):
    """GPT-3 on two slices of 256 chips, two devices per example, for 100 updates."""

    ICI_MESH_SHAPE = (1, 16, 16)
    DCN_MESH_SHAPE = (2, 1, 1)
    PERCORE_BATCH_SIZE = 0.5
    VOCAB_SIZE = 50257
    FPROP_DTYPE = "bfloat16"
    MAX_STEPS = 100
    CHECKPOINT_EVERY_N_STEPS = 2000


@experiment
class C4Spmd32BAdam1xv5_256(C4Spmd22BAdamMaxText):
    """32B parameters on half of a v5e-256: 128 chips."""

    ICI_MESH_SHAPE = (1, 128, 1)
    PERCORE_BATCH_SIZE = 2
    NUM_LAYERS = 40
    MODEL_DIMS = 8192
    NUM_HEADS = 32
    MAX_SEQ_LEN = 2048


@experiment
class C4Spmd32BAdam2xv5_256(C4Spmd32BAdam1xv5_256):
    """32B parameters on two slices."""

    DCN_MESH_SHAPE = (2, 1, 1)
