"""Deprecated names of arguments, from earlier versions of the original.

Each is translated, or accepted without effect, and the log says so once.
"""

from __future__ import annotations

import math
from abc import ABCMeta
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any

from xdpx.config.faults import ConfigError, Fault, nearest
from xdpx.logger import warn_user
from xdpx.trainer.arguments.values import read_dict

Options = dict[str, Any]
"""Keyword arguments for the constructor."""


@dataclass(frozen=True)
class OldName:
    """One deprecated name.

    Attributes:
        kind: type of its value, for the command line.
        becomes: what to write now, '' if it has no effect any more.
        take: translates the value into current keyword arguments; None: the value is only stored.
        read: returns its value to a script that reads it from the arguments.
        default: the value returned if it was never given and `read` is None.
        why: the reason why it has no effect.
        outer: the argument, a dict, of which it is a key now.
    """

    kind: type
    becomes: str = ""
    take: Callable[[Any, Options], None] | None = None
    read: Callable[[Any], Any] | None = None
    default: Any = None
    why: str = ""
    outer: str = ""


def _renamed(kind: type, new: str) -> OldName:
    def take(value: object, options: Options) -> None:
        if new in options and options[new] != value:
            raise ValueError(f"is {value!r}, and {new}, its current name, is {options[new]!r}. Give only {new}.")
        options[new] = value

    return OldName(kind, new, take, lambda arguments: getattr(arguments, new))


def _remembered(kind: type, becomes: str, *, default: object = None) -> OldName:
    return OldName(kind, becomes, default=default)


def _left_aside(kind: type, why: str, *, default: object = None) -> OldName:
    return OldName(kind, why=why, default=default)


def _flag(becomes: str, take: Callable[[Options], None], read: Callable[[Any], Any]) -> OldName:
    return OldName(bool, becomes, lambda value, options: take(options) if value else None, read)


def _within(outer: str, key: str, kind: type) -> OldName:
    """Describe an argument that is now a key of another one, which is a dict."""

    def take(value: object, options: Options) -> None:
        if value is None:
            return
        given: Any = options.get(outer)
        given = given.to_dict() if hasattr(given, "to_dict") else given
        options[outer] = {**(read_dict(given) if given else {}), key: value}

    def read(arguments: object) -> Any:
        settings = getattr(arguments, outer)
        return settings.get(key) if isinstance(settings, Mapping) else getattr(settings, key, None)

    return OldName(kind, f"{outer}={{'{key}': …}}", take, read, outer=outer)


def _take_warmup_ratio(value: Any, options: Options) -> None:
    ratio = float(value)
    if not 0 <= ratio <= 1:
        raise ValueError(f"is {value}. Give warmup_steps a share of all updates, from 0 to 1, or their number.")
    if not options.get("warmup_steps"):
        options["warmup_steps"] = math.nextafter(1.0, 0.0) if ratio == 1 else ratio


def _read_warmup_ratio(arguments: Any) -> float:
    return float(arguments.warmup_steps) if arguments.warmup_steps < 1 else 0.0


def _take_organization(value: object, options: Options) -> None:
    name = str(options.get("hub_model_id") or options.get("output_dir") or "trainer_output").rstrip("/")
    if value:
        options["hub_model_id"] = f"{value}/{name.rpartition('/')[2]}"


def _include_inputs(options: Options) -> None:
    given = options.get("include_for_metrics") or ()
    given = [given] if isinstance(given, str) else given
    options["include_for_metrics"] = [*dict.fromkeys([*given, "inputs"])]


def _count_tokens(options: Options) -> None:
    options.setdefault("include_num_input_tokens_seen", "all")


_APEX = "mixed precision is PyTorch's own: bf16 or fp16 turn it on"
_GONE = "what it turned on no longer exists"

OLD_NAMES: dict[str, OldName] = {
    "evaluation_strategy": _renamed(str, "eval_strategy"),
    "no_cuda": _renamed(bool, "use_cpu"),
    "per_gpu_train_batch_size": _renamed(int, "per_device_train_batch_size"),
    "per_gpu_eval_batch_size": _renamed(int, "per_device_eval_batch_size"),
    "push_to_hub_model_id": _renamed(str, "hub_model_id"),
    "push_to_hub_token": _renamed(str, "hub_token"),
    "push_to_hub_organization": OldName(str, "hub_model_id='organization/name'", _take_organization),
    "torchdynamo": _renamed(str, "torch_compile_backend"),
    "xpu_backend": _renamed(str, "ddp_backend"),
    "warmup_ratio": OldName(float, "warmup_steps, a share when below 1", _take_warmup_ratio, _read_warmup_ratio),
    "group_by_length": _flag(
        "train_sampling_strategy='group_by_length'",
        lambda options: options.update(train_sampling_strategy="group_by_length"),
        lambda arguments: arguments.train_sampling_strategy == "group_by_length",
    ),
    "adafactor": _flag(
        "optim='adafactor'",
        lambda options: options.update(optim="adafactor"),
        lambda arguments: arguments.optim == "adafactor",
    ),
    "include_inputs_for_metrics": _flag(
        "include_for_metrics=['inputs']", _include_inputs, lambda arguments: "inputs" in arguments.include_for_metrics
    ),
    "include_tokens_per_second": _flag(
        "include_num_input_tokens_seen='all'",
        _count_tokens,
        lambda arguments: arguments.include_num_input_tokens_seen != "no",
    ),
    "dispatch_batches": _within("accelerator_config", "dispatch_batches", bool),
    "split_batches": _within("accelerator_config", "split_batches", bool),
    "fsdp_min_num_params": _within("fsdp_config", "min_num_params", int),
    "fsdp_transformer_layer_cls_to_wrap": _within("fsdp_config", "transformer_layer_cls_to_wrap", str),
    "overwrite_output_dir": _remembered(bool, "a check in your script; training writes into output_dir in any case",
                                        default=False),
    "logging_dir": _remembered(str, "TENSORBOARD_LOGGING_DIR in the environment; it still says where TensorBoard logs"),
    "ray_scope": _remembered(str, "an argument of hyperparameter_search", default="last"),
    "save_safetensors": _left_aside(bool, "weights are always saved as safetensors", default=True),
    "use_mps_device": _left_aside(bool, "a Mac's GPU is used if there is one", default=False),
    "fp16_opt_level": _left_aside(str, _APEX, default="O1"),
    "fp16_backend": _left_aside(str, _APEX, default="auto"),
    "half_precision_backend": _left_aside(str, _APEX, default="auto"),
    "tpu_num_cores": _left_aside(int, "the launcher decides how many processes there are"),
    "tpu_metrics_debug": _left_aside(bool, _GONE, default=False),
    "jit_mode_eval": _left_aside(bool, _GONE, default=False),
    "use_ipex": _left_aside(bool, _GONE, default=False),
    "past_index": _left_aside(int, _GONE, default=-1),
    "use_legacy_prediction_loop": _left_aside(bool, _GONE, default=False),
    "mp_parameters": _left_aside(str, _GONE, default=""),
    "_n_gpu": _left_aside(int, "the number of GPUs is detected", default=None),
    "sharded_ddp": _left_aside(str, "use fsdp", default=""),
}  # fmt: skip


def taken_over(options: Mapping[str, Any], known: Collection[str]) -> tuple[Options, Options]:
    """Return the keyword arguments under their current names, and the deprecated ones that are only stored.

    Args:
        options: keyword arguments as the user wrote them.
        known: current names; a user's subclass may define a field with a deprecated name, which is then not translated.

    Raises:
        ConfigError: (a ValueError) naming every deprecated argument whose value cannot be translated.
    """
    today = {name: value for name, value in options.items() if name in known or name not in OLD_NAMES}
    remembered: Options = {}
    faults = []
    for name in [name for name in options if name not in today]:
        old, value = OLD_NAMES[name], options[name]
        try:
            _take(old, value, today)
        except ValueError as error:
            faults.append(Fault(name, str(error)))
        if old.read is None:
            remembered[name] = value
        _tell(name, old)
    if faults:
        raise ConfigError("TrainingArguments", faults)
    return today, remembered


def _take(old: OldName, value: object, today: Options) -> None:
    if old.take is not None and value is not None:
        old.take(value, today)


def _tell(name: str, old: OldName) -> None:
    if old.becomes:
        today = f"Use `{old.becomes}` instead" if old.becomes.isidentifier() else f"Today: {old.becomes}"
        warn_user(f"`{name}` is deprecated, and accepted. {today}.", FutureWarning)
    else:
        warn_user(f"`{name}` is deprecated, and accepted without effect: {old.why}.", FutureWarning)


class OldAttribute:
    """Descriptor that lets a script read and set an argument by its deprecated name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, arguments: object, owner: type) -> Any:
        if arguments is None:
            return self
        if self._is_a_field(arguments):
            return vars(arguments)[self._name]
        old = OLD_NAMES[self._name]
        return old.read(arguments) if old.read else vars(arguments).get(self._name, old.default)

    def _is_a_field(self, arguments: Any) -> bool:
        """Return whether a user's class defines a field of this name."""
        return self._name in type(arguments).__dataclass_fields__

    def __set__(self, arguments: object, value: object) -> None:
        """Set the current argument; a name that is only stored is stored."""
        old, options = OLD_NAMES[self._name], Options()
        if self._is_a_field(arguments):
            vars(arguments)[self._name] = value
            return
        if old.outer:
            raise AttributeError(f"{self._name} is part of {old.outer} now: set {old.becomes} in the constructor.")
        if old.read is None:
            vars(arguments)[self._name] = value
        _take(old, value, options)
        for name, today in options.items():
            setattr(arguments, name, today)


class AcceptsOldNames(ABCMeta):
    """Metaclass that makes the constructor written by `@dataclass` accept deprecated names, in subclasses, too.

    `@dataclass` sets the constructor after the class is created, so neither a base class nor `__init_subclass__` can
    change it; a metaclass intercepts the assignment.
    """

    def __setattr__(cls, name: str, value: Any) -> None:
        super().__setattr__(name, _translating(value) if name == "__init__" else value)


TOLD_APART = "_TOLD_APART"
"""Attribute of a class of arguments: names of fields for which it matters whether a user gave them explicitly."""


def note_written(arguments: object, names: Iterable[str]) -> None:
    """Record which arguments a user gave explicitly, even if with the default."""
    vars(arguments)["_written"] = was_written(arguments) | frozenset(names)


def was_written(arguments: object) -> frozenset[str]:
    """Return the names of the arguments that a user gave explicitly."""
    written: frozenset[str] = vars(arguments).get("_written", frozenset())
    return written


def _translating(constructor: Callable[..., None]) -> Callable[..., None]:
    @wraps(constructor)
    def __init__(self: Any, *values: Any, **options: Any) -> None:
        known = self.__dataclass_fields__
        _refuse_unknown(type(self).__name__, [name for name in options if name not in known], known)
        if 2 * len(options) < len(known):  # most of them are given when another object is copied
            note_written(self, options)
        if OLD_NAMES.keys().isdisjoint(options):
            constructor(self, *values, **options)
            return
        today, remembered = taken_over(options, known)
        vars(self).update(remembered)
        constructor(self, *values, **today)

    return __init__


def _refuse_unknown(owner: str, names: list[str], known: Collection[str]) -> None:
    """Raise TypeError, as Python would, for unknown names, with the nearest known name for each."""
    odd = [name for name in names if name not in OLD_NAMES]
    if odd:
        guesses = {name: nearest(name, [*known, *OLD_NAMES]) for name in odd}
        hints = [f"'{name}'" + (f" (did you mean '{guess}'?)" if guess else "") for name, guess in guesses.items()]
        plural = "s" if len(odd) > 1 else ""
        advice = "" if any(guesses.values()) else " HfArgumentParser and --help list all of them."
        article = "" if plural else "an "
        raise TypeError(f"{owner}() got {article}unexpected keyword argument{plural} {', '.join(hints)}.{advice}")
