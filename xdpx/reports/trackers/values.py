"""What trackers receive: the state and arguments of a training, and numbers by name, maybe in tensors or arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

PHASES = ("eval", "test")


class TrainingState(Protocol):
    """The attributes that trackers read of the state passed to each event."""

    epoch: float
    global_step: int
    max_steps: int
    is_world_process_zero: bool
    is_local_process_zero: bool
    is_hyper_param_search: bool
    trial_name: str | None


class TrainingSettings(Protocol):
    """The attributes that trackers read of the arguments passed to each event."""

    output_dir: Any
    train_batch_size: int
    world_size: int
    gradient_accumulation_steps: int
    learning_rate: float
    logging_steps: float
    max_grad_norm: float
    metric_for_best_model: str | None
    greater_is_better: bool | None
    seed: int

    def to_json_string(self) -> str:
        """Return all arguments as JSON."""
        ...


def number_in(value: Any) -> float | int | None:
    """Return the number in `value`: a Python, NumPy or torch number, or an array of one element; else None."""
    if hasattr(value, "item") and getattr(value, "size", None) is not None:
        count = value.numel() if hasattr(value, "numel") else value.size
        value = value.item() if count == 1 else None
    return value if isinstance(value, int | float) else None


def by_phase(logs: Mapping[str, Any]) -> dict[str, Any]:
    """Group names by phase: `eval_loss` becomes `eval/loss`; names without a phase go below `train/`."""
    return {_below_phase(name): value for name, value in logs.items()}


def _below_phase(name: str) -> str:
    phase, _, rest = name.partition("_")
    return f"{phase}/{rest}" if phase in PHASES and rest else f"train/{name}"
