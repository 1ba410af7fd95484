"""`accelerator_config`: how batches reach the processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from xdpx.config.faults import did_you_mean
from xdpx.trainer.arguments.values import read_dict, truth
from xdpx.utils.paths import StrPath

PER_PROCESS = "use_configured_state"
FLAGS = ("split_batches", "dispatch_batches", "even_batches", "use_seedable_sampler", "non_blocking", PER_PROCESS)
GROUPS = ("num_steps", "adjust_scheduler", "sync_with_dataloader", "sync_each_batch")
"""Keys of `gradient_accumulation_kwargs`: those of accelerate's GradientAccumulationPlugin."""


@dataclass
class AcceleratorConfig:
    """How batches reach the processes; the fields of accelerate's `AcceleratorConfig`.

    Attributes:
        split_batches: the given batch size is the total of all processes, not that of each.
        dispatch_batches: True: the first process loads all data and sends the others their part. None: each process
            loads everything and keeps its part. False: as None, but in training each loads its own shards of iterable
            data, if there are as many.
        even_batches: complete the last round with samples from the start, so that all processes take as many steps.
        use_seedable_sampler: shuffle by seed and epoch alone; False: by a number from torch's global generator.
        non_blocking: copy batches to the device without waiting.
        gradient_accumulation_kwargs: `num_steps` instead of gradient_accumulation_steps; `sync_each_batch`.
        use_configured_state: use the process group that the program has already initialised.
    """

    split_batches: bool = False
    dispatch_batches: bool | None = None
    even_batches: bool = True
    use_seedable_sampler: bool = True
    non_blocking: bool = False
    gradient_accumulation_kwargs: dict[str, Any] | None = None
    use_configured_state: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return all settings as plain values; use_configured_state only if it is true."""
        settings = asdict(self)
        return settings if self.use_configured_state else {k: v for k, v in settings.items() if k != PER_PROCESS}

    def pop(self, key: str, default: object = None) -> Any:
        """Return one setting without removing it, for code written for accelerate, which pops settings."""
        return getattr(self, key, default)

    @classmethod
    def from_json_file(cls, json_file: StrPath) -> AcceleratorConfig:
        """Read the settings from a JSON file. Raises ValueError if it cannot be read or has unknown keys."""
        return accelerator_config(str(json_file))


def accelerator_config(value: object) -> AcceleratorConfig:
    """Return the settings given as None, a dict, JSON, the path of a JSON file, or an object with `to_dict`.

    Raises:
        ValueError: the value is none of these, or has unknown keys or values of other kinds; the message is to follow
            the name of the argument.
    """
    if isinstance(value, AcceleratorConfig):
        return _checked(value)
    if isinstance(value, type):
        raise ValueError(f"is the class {value.__name__}. Give an instance: {value.__name__}().")
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    settings = {} if value is None else read_dict(value)
    _refuse_unknown(settings, [each.name for each in fields(AcceleratorConfig)])
    return _checked(AcceleratorConfig(**settings))


def _checked(config: AcceleratorConfig) -> AcceleratorConfig:
    """Convert flags given as words in place, and refuse values of other kinds."""
    for name in FLAGS:
        value = getattr(config, name)
        if value is not None:
            try:
                setattr(config, name, truth(value))
            except ValueError as error:
                raise ValueError(f"{name} {error}") from error
    groups = config.gradient_accumulation_kwargs
    if groups is not None and not isinstance(groups, Mapping):
        raise ValueError(f"gradient_accumulation_kwargs is {groups!r:.60}. Give a dict, such as {{'num_steps': 2}}.")
    _refuse_unknown(groups or {}, GROUPS, "gradient_accumulation_kwargs ")
    return config


def _refuse_unknown(settings: Mapping[str, Any], known: Sequence[str], where: str = "") -> None:
    unknown = [key for key in settings if key not in known]
    if unknown:
        remedy = did_you_mean(unknown[0], known, rest=f"Known: {', '.join(known)}.")
        raise ValueError(f"{where}has no key {', '.join(map(repr, unknown))}. {remedy}")
