"""The words that arguments may take. Each is a `str`, so it equals the same word of other libraries."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NoReturn

from xdpx.config.faults import nearest
from xdpx.config.registry import Registry
from xdpx.optimizers import optimizers
from xdpx.optimizers.lr_schedulers import lr_schedulers

FEW = 12
"""Longest list of words in an error message that has a suggestion."""


class Word(StrEnum):
    """One of a fixed set of words."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}.{self.name}: {self.value!r}>"

    @classmethod
    def registry(cls) -> Registry[Any] | None:
        """Return the registry with further words: names of ours, or of users' modules. None if there is none."""
        return None

    @classmethod
    def read(cls, value: str) -> str:
        """Return the member for a text; further words, which are not in the original's enum, remain `str`."""
        further = cls.registry() or ()
        return str(value) if value in further and value not in cls._value2member_map_ else cls(value)

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        words = list(dict.fromkeys([*(word.value for word in cls), *(cls.registry() or ())]))
        near = nearest(str(value), words)
        offer = f" Did you mean '{near}'?" if near else ""
        listed = f" Choose one of: {', '.join(words)}." if len(words) <= FEW or not near else ""
        raise ValueError(f"no '{value}' is known.{offer}{listed}")


class IntervalStrategy(Word):
    """When an action happens during training."""

    NO = "no"
    STEPS = "steps"
    EPOCH = "epoch"


class SaveStrategy(Word):
    """When a checkpoint is saved; `best`: after every evaluation with a new best score."""

    NO = "no"
    STEPS = "steps"
    EPOCH = "epoch"
    BEST = "best"


class HubStrategy(Word):
    """What is uploaded to the Hub, and when."""

    END = "end"
    EVERY_SAVE = "every_save"
    CHECKPOINT = "checkpoint"
    ALL_CHECKPOINTS = "all_checkpoints"


class ParallelMode(Word):
    """How several devices are used."""

    NOT_PARALLEL = "not_parallel"
    NOT_DISTRIBUTED = "not_distributed"
    DISTRIBUTED = "distributed"
    SAGEMAKER_MODEL_PARALLEL = "sagemaker_model_parallel"
    SAGEMAKER_DATA_PARALLEL = "sagemaker_data_parallel"
    TPU = "tpu"


class DebugOption(Word):
    """What to watch for while training."""

    UNDERFLOW_OVERFLOW = "underflow_overflow"
    TPU_METRICS_DEBUG = "tpu_metrics_debug"


class SchedulerType(Word):
    """Names of the original's learning rate schedules; `lr_scheduler_type` accepts all of `lr_schedulers`."""

    @classmethod
    def registry(cls) -> Registry[Any]:
        """Return the registry of schedules, shared with x-train."""
        return lr_schedulers

    LINEAR = "linear"
    COSINE = "cosine"
    COSINE_WITH_RESTARTS = "cosine_with_restarts"
    POLYNOMIAL = "polynomial"
    CONSTANT = "constant"
    CONSTANT_WITH_WARMUP = "constant_with_warmup"
    INVERSE_SQRT = "inverse_sqrt"
    REDUCE_ON_PLATEAU = "reduce_lr_on_plateau"
    COSINE_WITH_MIN_LR = "cosine_with_min_lr"
    COSINE_WARMUP_WITH_MIN_LR = "cosine_warmup_with_min_lr"
    WARMUP_STABLE_DECAY = "warmup_stable_decay"
    GREEDY = "greedy"


class OptimizerNames(Word):
    """Names of the original's optimizers; `optim` accepts all of `optimizers`."""

    @classmethod
    def registry(cls) -> Registry[Any]:
        """Return the registry of optimizers, shared with x-train."""
        return optimizers

    ADAMW_TORCH = "adamw_torch"
    ADAMW_TORCH_FUSED = "adamw_torch_fused"
    ADAMW_TORCH_XLA = "adamw_torch_xla"
    ADAMW_TORCH_NPU_FUSED = "adamw_torch_npu_fused"
    ADAFACTOR = "adafactor"
    ADAMW_ANYPRECISION = "adamw_anyprecision"
    ADAMW_TORCH_4BIT = "adamw_torch_4bit"
    ADAMW_TORCH_8BIT = "adamw_torch_8bit"
    ADEMAMIX = "ademamix"
    SGD = "sgd"
    ADAGRAD = "adagrad"
    ADAMW_BNB = "adamw_bnb_8bit"
    ADAMW_8BIT = "adamw_8bit"
    ADEMAMIX_8BIT = "ademamix_8bit"
    LION_8BIT = "lion_8bit"
    LION = "lion_32bit"
    PAGED_ADAMW = "paged_adamw_32bit"
    PAGED_ADAMW_8BIT = "paged_adamw_8bit"
    PAGED_ADEMAMIX = "paged_ademamix_32bit"
    PAGED_ADEMAMIX_8BIT = "paged_ademamix_8bit"
    PAGED_LION = "paged_lion_32bit"
    PAGED_LION_8BIT = "paged_lion_8bit"
    RMSPROP = "rmsprop"
    RMSPROP_BNB = "rmsprop_bnb"
    RMSPROP_8BIT = "rmsprop_bnb_8bit"
    RMSPROP_32BIT = "rmsprop_bnb_32bit"
    GALORE_ADAMW = "galore_adamw"
    GALORE_ADAMW_8BIT = "galore_adamw_8bit"
    GALORE_ADAFACTOR = "galore_adafactor"
    GALORE_ADAMW_LAYERWISE = "galore_adamw_layerwise"
    GALORE_ADAMW_8BIT_LAYERWISE = "galore_adamw_8bit_layerwise"
    GALORE_ADAFACTOR_LAYERWISE = "galore_adafactor_layerwise"
    LOMO = "lomo"
    ADALOMO = "adalomo"
    GROKADAMW = "grokadamw"
    SCHEDULE_FREE_RADAM = "schedule_free_radam"
    SCHEDULE_FREE_ADAMW = "schedule_free_adamw"
    SCHEDULE_FREE_SGD = "schedule_free_sgd"
    APOLLO_ADAMW = "apollo_adamw"
    APOLLO_ADAMW_LAYERWISE = "apollo_adamw_layerwise"
    STABLE_ADAMW = "stable_adamw"
