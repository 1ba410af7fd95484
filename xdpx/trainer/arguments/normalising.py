"""Convert every argument to its final type; values that cannot be converted are faults."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields
from typing import Any

from xdpx.config.faults import Fault
from xdpx.logger import log, warn_user
from xdpx.trainer.arguments import fsdp
from xdpx.trainer.arguments.acceleration import AcceleratorConfig, accelerator_config
from xdpx.trainer.arguments.enums import (
    DebugOption,
    HubStrategy,
    IntervalStrategy,
    OptimizerNames,
    SaveStrategy,
    SchedulerType,
    Word,
)
from xdpx.trainer.arguments.fields import Fields
from xdpx.trainer.arguments.places import library_level
from xdpx.trainer.arguments.trackers import trackers
from xdpx.trainer.arguments.values import EXAMPLES, needed_numbers, plain, plain_kinds, read_dict, truth
from xdpx.utils.metric_names import is_higher_better

WORDS: dict[str, type[Word]] = {
    "eval_strategy": IntervalStrategy,
    "logging_strategy": IntervalStrategy,
    "save_strategy": SaveStrategy,
    "hub_strategy": HubStrategy,
    "lr_scheduler_type": SchedulerType,
    "optim": OptimizerNames,
}
OLD_WORDS = {"optim": {"adamw_hf": "adamw_torch", "adamw_apex_fused": "adamw_torch_fused"}}
"""Words of earlier versions, and their current equivalents."""

SCORED_SCHEDULES = {SchedulerType.REDUCE_ON_PLATEAU, SchedulerType.GREEDY}
"""Schedules that depend on the scores of evaluations."""

LEFT_OUT = {"eval_delay", "per_device_eval_batch_size", "ddp_timeout", "local_rank"}
"""Numbers that may be None, as in the original, which seldom asks for them: it stands for the default."""

INTERVALS = {"logging_steps", "save_steps"}
"""Numbers that may be None where the strategy has no use for them, which is checked with the strategies."""

NEVER_FLOAT = {"torch_empty_cache_steps"}
"""Fields that do not accept 1.0, as in the original; others accept a whole number written as 1e3."""

LISTS = ("label_names", "include_for_metrics")

KEYWORDS = ("lr_scheduler_kwargs", "activation_checkpointing_kwargs", "gradient_checkpointing_kwargs",
            "liger_kernel_config")  # fmt: skip
"""Dicts that are passed on as keyword arguments; a path is that of a JSON file with them."""


def normalise(arguments: Fields, dict_fields: Iterable[str]) -> list[Fault]:
    """Normalise the arguments in place and return their faults. An invalid value is replaced by its default.

    Args:
        arguments: as the user wrote them.
        dict_fields: names of fields that accept JSON, including those of a user's subclass.
    """
    _paths(arguments, dict_fields)
    _lists(arguments)
    faults = [*_numbers(arguments), *_dicts(arguments, dict_fields), *_words(arguments)]
    _earlier_names(arguments)
    _derive(arguments)
    faults += [*_accelerator(arguments), *fsdp.normalise(arguments)]
    return faults


def _refused(arguments: Fields, name: str, error: object) -> Fault:
    """Return the fault of an invalid value, and set the default in its place so that checks can continue."""
    declared = next(each for each in fields(arguments) if each.name == name)
    made = declared.default_factory
    setattr(arguments, name, declared.default if made is MISSING else made())
    return Fault(name, str(error))


def _paths(arguments: Fields, dict_fields: Iterable[str]) -> None:
    for name in (*dict_fields, "resume_from_checkpoint"):
        value: Any = getattr(arguments, name)
        if isinstance(value, os.PathLike):
            setattr(arguments, name, os.fspath(value))
    arguments.output_dir = os.path.expanduser(arguments.output_dir or "trainer_output")
    resume = str(arguments.resume_from_checkpoint).lower()
    if resume in {"true", "false"}:  # from a command line, which has only text
        arguments.resume_from_checkpoint = resume == "true" or None  # type: ignore[assignment]
    if arguments.hub_token == "<HUB_TOKEN>":  # written by to_dict in place of the token
        arguments.hub_token = None


def _lists(arguments: Fields) -> None:
    """Split lists of names that are one text, as YAML and the environment give them."""
    for name in LISTS:
        value = getattr(arguments, name)
        if isinstance(value, str):
            setattr(arguments, name, value.replace(",", " ").split())


def _numbers(arguments: Fields) -> Iterator[Fault]:
    """Convert text (as from YAML or the environment) and numbers of NumPy and similar libraries to plain numbers."""
    usual = {each.name: each.default for each in fields(arguments)}
    for name in needed_numbers(Fields):
        if getattr(arguments, name) is not None or usual[name] is None:  # a user's class may allow it
            continue
        if name in LEFT_OUT:
            setattr(arguments, name, usual[name])
        elif name not in INTERVALS:
            without = "0 for no clipping," if name == "max_grad_norm" else "a number,"
            yield _refused(arguments, name, f"is None. Give {without} or leave it out for {usual[name]}.")
    for name, kind in plain_kinds(Fields).items():
        if name in NEVER_FLOAT and isinstance(getattr(arguments, name), float):
            yield _refused(arguments, name, f"is {getattr(arguments, name)}. Use {EXAMPLES[int]}.")
        try:
            setattr(arguments, name, plain(getattr(arguments, name), kind))
        except ValueError as error:
            yield _refused(arguments, name, error)


def _dicts(arguments: Fields, names: Iterable[str]) -> Iterator[Fault]:
    for name in (*names, "liger_kernel_config"):
        value = getattr(arguments, name)
        if not isinstance(value, str) or not (value.lstrip().startswith("{") or name in KEYWORDS):
            continue
        try:
            setattr(arguments, name, read_dict(value))
        except ValueError as error:
            yield _refused(arguments, name, error)


def _words(arguments: Fields) -> Iterator[Fault]:
    for name, words in WORDS.items():
        try:
            setattr(arguments, name, words.read(_todays_word(name, getattr(arguments, name))))
        except ValueError as error:
            yield _refused(arguments, name, error)
            setattr(arguments, name, words(getattr(arguments, name)))
    asked = arguments.debug or []
    try:
        arguments.debug = [DebugOption(word) for word in (asked.split() if isinstance(asked, str) else asked)]
    except ValueError as error:
        arguments.debug = []
        yield Fault("debug", str(error))


def _todays_word(name: str, word: object) -> Any:
    today = OLD_WORDS.get(name, {}).get(str(word), word)
    if today != word:
        log.warning(f"TrainingArguments: {name} '{word}' is an outdated name; '{today}' does the same.", once=True)
    return today


def _earlier_names(arguments: Fields) -> None:
    """Make gradient_checkpointing and activation_checkpointing equal, whichever of the two was given."""
    for old, new in (
        ("gradient_checkpointing", "activation_checkpointing"),
        ("gradient_checkpointing_kwargs", "activation_checkpointing_kwargs"),
    ):
        if getattr(arguments, new) is None and getattr(arguments, old) is not None:
            warn_user(f"`{old}` is deprecated, and accepted. Use `{new}` instead.", FutureWarning)
            setattr(arguments, new, getattr(arguments, old))
        setattr(arguments, old, getattr(arguments, new))
    arguments.activation_checkpointing = arguments.gradient_checkpointing = bool(arguments.activation_checkpointing)


def _derive(arguments: Fields) -> None:
    """Derive values that were not given from those that were."""
    if arguments.disable_tqdm is None:
        arguments.disable_tqdm = library_level() > 30
    counted = arguments.include_num_input_tokens_seen
    if isinstance(counted, bool) or str(counted).lower() in {"true", "false"}:
        arguments.include_num_input_tokens_seen = "all" if truth(counted) else "no"
    arguments.do_eval = arguments.do_eval or arguments.eval_strategy != "no"
    if arguments.eval_strategy == "steps" and not arguments.eval_steps:
        arguments.eval_steps = arguments.logging_steps
    if arguments.metric_for_best_model is None and (
        arguments.load_best_model_at_end or arguments.lr_scheduler_type in SCORED_SCHEDULES
    ):
        arguments.metric_for_best_model = "loss"
    if arguments.greater_is_better is None and arguments.metric_for_best_model is not None:
        arguments.greater_is_better = not arguments.metric_for_best_model.endswith("loss")
        if arguments.greater_is_better and is_higher_better(arguments.metric_for_best_model) is False:
            log.warning(
                f"greater_is_better: is not given, so the highest '{arguments.metric_for_best_model}' is the best, as "
                "in the original for every name not ending in loss. If the lowest is, set greater_is_better=False."
            )
    if arguments.max_steps == 0:
        log.warning(
            "max_steps: is 0, which counts as not given: a training takes num_train_epochs, "
            f"{arguments.num_train_epochs}. To train nothing, set num_train_epochs=0; to leave max_steps out, -1."
        )
    arguments.report_to = trackers(arguments.report_to)
    _derive_from_machine(arguments)


def _derive_from_machine(arguments: Fields) -> None:
    if arguments.torch_compile_mode is not None or arguments.torch_compile_backend is not None:
        arguments.torch_compile = True
    if arguments.torch_compile and arguments.torch_compile_backend is None:
        arguments.torch_compile_backend = "inductor"
    if arguments.use_cpu:
        arguments.dataloader_pin_memory = False
    # the GPU of a Mac cannot be used from spawned processes
    several = arguments.dataloader_num_workers > 1 and arguments.dataloader_multiprocessing_context is None
    if several and sys.platform == "darwin":
        import torch

        if torch.backends.mps.is_available():
            arguments.dataloader_multiprocessing_context = "fork"


def _accelerator(arguments: Fields) -> Iterator[Fault]:
    try:
        config = accelerator_config(arguments.accelerator_config)
    except (ValueError, TypeError) as error:
        config = AcceleratorConfig()
        yield Fault("accelerator_config", str(error))
    arguments.accelerator_config = config  # type: ignore[assignment]  # the declared type is the CLI's
    groups = (config.gradient_accumulation_kwargs or {}).get("num_steps")
    if groups is None or groups == arguments.gradient_accumulation_steps:
        return
    if arguments.gradient_accumulation_steps != 1:
        yield Fault(
            "gradient_accumulation_steps",
            f"is {arguments.gradient_accumulation_steps}, and num_steps in accelerator_config is {groups}.",
            "Give only one of them.",
        )
    arguments.gradient_accumulation_steps = groups
