"""What a Trainer is told: the arguments, their words, and the parser of command lines for them."""

from __future__ import annotations

from xdpx.arguments.acceleration import AcceleratorConfig
from xdpx.arguments.compiling import CompileOptions
from xdpx.arguments.enums import (
    DebugOption,
    HubStrategy,
    IntervalStrategy,
    OptimizerNames,
    ParallelMode,
    SaveStrategy,
    SchedulerType,
)
from xdpx.arguments.fsdp import FSDPOption, FsdpOptions
from xdpx.arguments.parser import HfArg, HfArgumentParser
from xdpx.arguments.seq2seq import Seq2SeqTrainingArguments
from xdpx.arguments.training import TrainingArguments

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
