"""The arguments of a Trainer, the values they may take, and their command line parser."""

from __future__ import annotations

from xdpx.trainer.arguments.acceleration import AcceleratorConfig
from xdpx.trainer.arguments.enums import (
    DebugOption,
    HubStrategy,
    IntervalStrategy,
    OptimizerNames,
    ParallelMode,
    SaveStrategy,
    SchedulerType,
)
from xdpx.trainer.arguments.fsdp import FSDPOption, FsdpOptions
from xdpx.trainer.arguments.hardware import CompileOptions
from xdpx.trainer.arguments.parser import HfArg, HfArgumentParser
from xdpx.trainer.arguments.training import Seq2SeqTrainingArguments, TrainingArguments

__all__ = [
    "AcceleratorConfig",
    "CompileOptions",
    "DebugOption",
    "FSDPOption",
    "FsdpOptions",
    "HfArg",
    "HfArgumentParser",
    "HubStrategy",
    "IntervalStrategy",
    "OptimizerNames",
    "ParallelMode",
    "SaveStrategy",
    "SchedulerType",
    "Seq2SeqTrainingArguments",
    "TrainingArguments",
]
