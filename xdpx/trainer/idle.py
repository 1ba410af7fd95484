"""Arguments and functions given to a Trainer that change nothing, because another one switches them off."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from xdpx.logger import log
from xdpx.trainer.arguments import TrainingArguments


class Idle(NamedTuple):
    """An argument that changes nothing.

    Attributes:
        name: of the argument, which changes nothing unless it has its default.
        why: what switches it off; other arguments in braces.
        remedy: what to do.
        applies: whether it is switched off.
    """

    name: str
    why: str
    remedy: str
    applies: Callable[[TrainingArguments], bool]


IDLE = (
    Idle("eval_steps", "eval_strategy is '{eval_strategy}'", "set eval_strategy='steps'",
         lambda args: args.eval_strategy != "steps"),
    Idle("eval_delay", "eval_strategy is 'no'", "set eval_strategy", lambda args: args.eval_strategy == "no"),
    Idle("save_steps", "save_strategy is '{save_strategy}'", "set save_strategy='steps'",
         lambda args: args.save_strategy in ("epoch", "best")),
    Idle("logging_steps", "logging_strategy is 'epoch'", "set logging_strategy='steps'",
         lambda args: args.logging_strategy == "epoch" and args.eval_strategy != "steps" and not args.inspect_gradient),
    Idle("activation_checkpointing_kwargs", "activation_checkpointing is not set", "set activation_checkpointing=True",
         lambda args: not args.activation_checkpointing),
    Idle("liger_kernel_config", "use_liger_kernel is False", "set use_liger_kernel=True",
         lambda args: not args.use_liger_kernel),
    Idle("length_column_name", "train_sampling_strategy is '{train_sampling_strategy}'",
         "set train_sampling_strategy='group_by_length'",
         lambda args: args.train_sampling_strategy in ("random", "sequential")),
)  # fmt: skip
"""Switches that are off on purpose, such as save_strategy='no', are not told of."""


def warn_of_idle(args: TrainingArguments) -> None:
    """Warn of arguments that change nothing in a training with these arguments."""
    for each in IDLE:
        if _is_given(args, each.name) and each.applies(args):
            _tell(each.name, getattr(args, each.name), each.why.format_map(vars(args)), each.remedy)
    if getattr(args, "sortish_sampler", False):  # of Seq2SeqTrainingArguments
        log.warning(
            "sortish_sampler: has no effect, as in the original. To sort by length, set "
            "train_sampling_strategy='group_by_length'.",
            once=True,
        )


def warn_of_given_optimizer(args: TrainingArguments, optimizer: Any, schedule: Any) -> None:
    """Warn of arguments that change nothing because an optimizer or a schedule was given; None if it was not."""
    groups = getattr(optimizer, "param_groups", ())
    own = {
        "optim": [],
        "learning_rate": [group.get("initial_lr", group.get("lr")) for group in groups],
        "weight_decay": [group.get("weight_decay") for group in groups],
    }
    for name, values in own.items() if optimizer is not None else ():
        if _is_given(args, name) and getattr(args, name) not in values:
            _tell(name, getattr(args, name), "the optimizer given in `optimizers` has its own", "set it there")
    for name in ("lr_scheduler_type", "warmup_steps") if schedule is not None else ():
        if _is_given(args, name):
            _tell(name, getattr(args, name), "a schedule is given in `optimizers`", "set it there")


def warn_of_given_class(args: TrainingArguments, kwargs: Mapping[str, Any]) -> None:
    """Warn if the learning rate of the arguments is not that of `optimizer_cls_and_kwargs`, which counts."""
    rate = kwargs.get("lr")
    if _is_given(args, "learning_rate") and rate != args.learning_rate:
        own = "has no lr, so that the default of the class holds" if rate is None else f"has an lr of {rate}"
        _tell("learning_rate", args.learning_rate, f"optimizer_cls_and_kwargs {own}", "set lr there")


def warn_of_unresumed(args: TrainingArguments) -> None:
    """Warn if a training begins anew although the arguments, which only scripts read, name a checkpoint."""
    wanted = args.resume_from_checkpoint
    if wanted and str(wanted).lower() != "false":
        log.warning(
            f"resume_from_checkpoint: is '{wanted}' in the arguments, where only your script reads it, and train() was "
            "called without it: a new training begins. To continue, call "
            "trainer.train(resume_from_checkpoint=args.resume_from_checkpoint).",
            once=True,
        )


READ_ONCE = (
    "bf16", "fp16", "tf32", "fsdp", "deepspeed", "include_num_input_tokens_seen", "report_to",
)  # fmt: skip
OF_LOSS = ("label_names", "label_smoothing_factor")
"""Arguments that are read when the Trainer is made, and those that are read again for each model of `model_init`."""


def read_once(args: TrainingArguments) -> dict[str, Any]:
    """Return the arguments that are read when the Trainer is made."""
    return {name: getattr(args, name) for name in (*READ_ONCE, *OF_LOSS)}


def warn_of_late(
    args: TrainingArguments, before: Mapping[str, Any], *, noise: float | None, makes_models: bool
) -> None:
    """Warn of arguments that were changed after they had been read.

    Args:
        args: when a training begins.
        before: result of `read_once`.
        noise: the `neftune_noise_alpha` that holds.
        makes_models: whether there is a `model_init`.
    """
    kept = {"neftune_noise_alpha": noise, **before}
    for name, value in kept.items():
        now = getattr(args, name)
        if now != value and not (makes_models and name in OF_LOSS):
            log.warning(
                f"{name}: is {now!r:.60} now, but was {value!r:.60} when the Trainer was made, which counts. Make "
                "another Trainer.",
                once=True,
            )


def _is_given(args: TrainingArguments, name: str) -> bool:
    """Return whether an argument does not have its default, which a class of a library or a user may have changed."""
    return bool(getattr(args, name) != getattr(type(args), name))


def _tell(name: str, value: object, why: str, remedy: str) -> None:
    log.warning(f"{name}: is {value!r:.60}, which has no effect, as {why}. To use it, {remedy}.", once=True)
