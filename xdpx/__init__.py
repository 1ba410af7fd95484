"""XDPX: preprocess, train, evaluate and predict with text models, from one config in any environment."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xdpx.commands.python_door import Tuned, preprocess, train, tune
    from xdpx.config.faults import ConfigError
    from xdpx.config.loading import load
    from xdpx.config.parameters import Parameters, param
    from xdpx.engines.pytorch.kernels import set_seed
    from xdpx.inference.answers import Prediction
    from xdpx.inference.session import TrainedRun, load_run
    from xdpx.trainer.arguments import (
        HfArgumentParser,
        HubStrategy,
        IntervalStrategy,
        OptimizerNames,
        ParallelMode,
        SaveStrategy,
        SchedulerType,
        Seq2SeqTrainingArguments,
        TrainingArguments,
    )
    from xdpx.trainer.data.collation import DataCollatorWithPadding, default_data_collator
    from xdpx.trainer.hooks.builtin import (
        DefaultFlowCallback,
        EarlyStoppingCallback,
        PrinterCallback,
        ProgressCallback,
    )
    from xdpx.trainer.hooks.events import TrainerCallback
    from xdpx.trainer.hooks.state import ExportableState, TrainerControl, TrainerState
    from xdpx.trainer.outputs import EvalLoopOutput, EvalPrediction, PredictionOutput, TrainOutput
    from xdpx.trainer.search import BestRun
    from xdpx.trainer.seq2seq import Seq2SeqTrainer
    from xdpx.trainer.standing_in import stand_in_for_transformers
    from xdpx.trainer.trainer import Trainer

__version__ = "1.0.0.dev1"

_HOMES = {
    "xdpx.trainer.arguments": (
        "HfArgumentParser", "HubStrategy", "IntervalStrategy", "OptimizerNames", "ParallelMode", "SaveStrategy",
        "SchedulerType", "Seq2SeqTrainingArguments", "TrainingArguments",
    ),
    "xdpx.commands.python_door": ("Tuned", "preprocess", "train", "tune"),
    "xdpx.config.faults": ("ConfigError",),
    "xdpx.config.loading": ("load",),
    "xdpx.config.parameters": ("Parameters", "param"),
    "xdpx.inference.answers": ("Prediction",),
    "xdpx.inference.session": ("TrainedRun", "load_run"),
    "xdpx.trainer.data.collation": ("DataCollatorWithPadding", "default_data_collator"),
    "xdpx.engines.pytorch.kernels": ("set_seed",),
    "xdpx.trainer.hooks.builtin": (
        "DefaultFlowCallback", "EarlyStoppingCallback", "PrinterCallback", "ProgressCallback",
    ),
    "xdpx.trainer.hooks.events": ("TrainerCallback",),
    "xdpx.trainer.hooks.state": ("ExportableState", "TrainerControl", "TrainerState"),
    "xdpx.trainer.outputs": ("EvalLoopOutput", "EvalPrediction", "PredictionOutput", "TrainOutput"),
    "xdpx.trainer.seq2seq": ("Seq2SeqTrainer",),
    "xdpx.trainer.standing_in": ("stand_in_for_transformers",),
    "xdpx.trainer.trainer": ("Trainer",),
    "xdpx.trainer.search": ("BestRun",),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "__version__", "ConfigError", "Parameters", "load", "param",
    "load_run", "TrainedRun", "Prediction", "train", "preprocess", "tune", "Tuned",
    "Trainer", "TrainingArguments", "Seq2SeqTrainer", "Seq2SeqTrainingArguments", "HfArgumentParser",
    "TrainerCallback", "TrainerState", "TrainerControl", "ExportableState", "DefaultFlowCallback",
    "EarlyStoppingCallback", "PrinterCallback", "ProgressCallback",
    "EvalPrediction", "EvalLoopOutput", "PredictionOutput", "TrainOutput", "BestRun",
    "IntervalStrategy", "SaveStrategy", "HubStrategy", "SchedulerType", "OptimizerNames", "ParallelMode",
    "DataCollatorWithPadding", "default_data_collator", "set_seed",
    "stand_in_for_transformers",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Return a public name. Its module is imported at first use, so that `import xdpx` is fast."""
    if name not in _HOME:
        raise AttributeError(f"module 'xdpx' has no attribute '{name}'")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
