"""How a Trainer computes its loss: which function is called with which arguments, and the divisor of the sum.

The sum over a window of micro-batches is divided, once, by the number of targets of the whole window on all
processes (the *count*). A loss that does not accept the count is a mean over its micro-batch, and is divided by the
number of micro-batches instead. Shapes: B rows, T positions, C classes.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from xdpx.engines.pytorch import collectives
from xdpx.logger import warn_user

IGNORED = -100
"""The label of positions without a target."""

Count = Tensor | int | None
"""Number of targets of a window; None if it is not used."""


@dataclass(frozen=True)
class CallShape:
    """The optional parameters of a function that a user may have written, inspected once instead of at every step."""

    takes_return_outputs: bool
    takes_count: bool

    @classmethod
    def of(cls, function: Callable[..., Any]) -> CallShape:
        """Inspect a bound method or a function, e.g. an overridden `compute_loss` or a `compute_loss_func`."""
        return cls(takes(function, "return_outputs"), takes(function, "num_items_in_batch"))

    def extras(self, count: Count = None, return_outputs: bool = False) -> dict[str, Any]:
        """Return the keyword arguments that the function accepts.

        Raises ValueError if outputs are requested and the function cannot return them.
        """
        chosen: dict[str, Any] = {"num_items_in_batch": count} if self.takes_count else {}
        if return_outputs:
            if not self.takes_return_outputs:
                raise ValueError(
                    "compute_loss: the outputs are needed too (evaluation), but it takes no return_outputs. "
                    "Write `def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None)` and "
                    "return (loss, outputs) when return_outputs is true."
                )
            chosen["return_outputs"] = True
        return chosen


def takes(function: Callable[..., Any], name: str) -> bool:
    """Return whether a function has a parameter of this name, or accepts any keyword."""
    found = _parameters(function)
    return name in found or any(one.kind is one.VAR_KEYWORD for one in found.values())


def num_positional(function: Callable[..., Any]) -> int | None:
    """Return how many arguments a function takes by position, None for any number: older overrides take fewer."""
    try:
        kinds = [one.kind for one in inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):  # written in C, say
        return None
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return None
    return len(kinds) - kinds.count(inspect.Parameter.KEYWORD_ONLY) - kinds.count(inspect.Parameter.VAR_KEYWORD)


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # e.g. written in C
        return {}


def accepts_count(model: nn.Module) -> bool:
    """Return whether the model divides its loss by `num_items_in_batch`, by `accepts_loss_kwargs` or `**kwargs`.

    `model` is unwrapped (`xdpx.models.pytorch.preparing.bare`).
    """
    declared = getattr(model, "accepts_loss_kwargs", None)
    if declared is not None:
        return bool(declared)
    return any(one.kind is one.VAR_KEYWORD for one in _parameters(model.forward).values())


def label_names(model: nn.Module) -> list[str]:
    """Return the names of a model's inputs that are targets: labels, and the ends of answers in question answering."""
    answers = {"start_positions", "end_positions"} if "QuestionAnswering" in type(model).__name__ else set()
    return [name for name in _parameters(model.forward) if "label" in name or name in answers]


def returns_loss(model: nn.Module) -> bool:
    """Return whether the model computes a loss without labels by default (CLIP does only on request)."""
    asked = _parameters(model.forward).get("return_loss")
    return asked is not None and asked.default is True


def ignores_count(model: nn.Module) -> bool:
    """Return whether the model accepts the count but returns a plain mean.

    These are regression, several labels per row, models of transformers whose forward calls a loss of torch itself,
    such as BERT and T5, and users' models whose forward takes any keyword and uses none. The original treats that mean
    as a sum already divided, so that its losses and gradients grow with the accumulation and the number of processes.
    """
    if type(model).__module__.startswith("transformers.models.") and _calls_a_loss_of_torch(model):
        return True
    if accepts_count(model) and not uses(model.forward, "num_items_in_batch"):
        return True
    config = getattr(model, "config", None)
    if _loss_function_name(model) != "ForSequenceClassificationLoss":
        return False
    kind = getattr(config, "problem_type", None)
    one_number = kind is None and getattr(config, "num_labels", 0) == 1
    return one_number or kind in {"regression", "multi_label_classification"}


LOSSES_OF_TORCH = frozenset({"CrossEntropyLoss", "MSELoss", "BCEWithLogitsLoss", "L1Loss", "CTCLoss"})


def uses(function: Callable[..., Any], name: str) -> bool:
    """Return whether a function uses a parameter, or the one that collects any keyword; True where this is unknown."""
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    if code is None:
        return True
    parameters = _parameters(function)
    any_keyword = [each.name for each in parameters.values() if each.kind is each.VAR_KEYWORD]
    taker = name if name in parameters or not any_keyword else any_keyword[0]
    loaded = [each.argval for each in dis.get_instructions(code) if each.opname.startswith("LOAD_")]
    return taker in code.co_cellvars or any(taker in (each if isinstance(each, tuple) else (each,)) for each in loaded)


def mentions(function: Callable[..., Any], attribute: str) -> bool:
    """Return whether the code of a function reads an attribute of this name; True where its code is unknown."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code is None or attribute in code.co_names


def _calls_a_loss_of_torch(model: nn.Module) -> bool:
    """Return whether the forward of a model uses a loss of torch, and not the one that accepts the count."""
    code = getattr(inspect.unwrap(type(model).forward), "__code__", None)
    names = frozenset(code.co_names) if code is not None else frozenset()
    return bool(names & LOSSES_OF_TORCH) and "loss_function" not in names


def shifts_labels(model: nn.Module) -> bool:
    """Return whether the model's own loss compares position t with label t+1, so that the first label is not a target.

    Decided as in the original, by the loss that transformers has recorded for the model, so that the numbers are equal.
    None is recorded for GPT2LMHeadModel: there and here its sums are divided by one target per row too many.
    """
    encoder_decoder = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    return _loss_function_name(model) == "ForCausalLMLoss" and not encoder_decoder


TOKEN_MEANS = frozenset({"ForCausalLMLoss", "ForMaskedLMLoss", "ForTokenClassification"})
"""Losses of transformers that are means over targets, whatever a model adds to them (such as that of its router)."""


def averages_targets(model: nn.Module) -> bool:
    """Return whether a model of transformers itself is known to return a mean over targets."""
    of_transformers = type(model).__module__.startswith("transformers.models.")
    return of_transformers and _loss_function_name(model) in TOKEN_MEANS


def _loss_function_name(model: nn.Module) -> str | None:
    """Return the name of the loss function that transformers chose for the model; None for any other model."""
    kind = getattr(model, "loss_type", None)
    if kind is None:
        return None
    from transformers.loss.loss_utils import LOSS_MAPPING

    return getattr(LOSS_MAPPING.get(kind), "__name__", None)


def smoother_shifts_labels(model: nn.Module) -> bool:
    """Return whether `LabelSmoother` must shift for this model, i.e. its class is a causal language model."""
    if not hasattr(model, "loss_type") and not hasattr(model, "config"):
        return False
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return type(model).__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()


def count_targets(batches: Sequence[Any], *, shift: bool = False) -> Tensor | None:
    """Return the number of targets of a window of micro-batches on this process, without synchronising with the device.

    Args:
        batches: Micro-batches with `labels` (any shape, `IGNORED` at positions without a target), or `shift_labels` if
            a collator has shifted them.
        shift: The first label of each row is not a target (`shifts_labels`).

    Returns:
        A number, shape (), on the device of the labels; None if there are none, or if they cannot be counted.
    """
    try:
        if not batches or "labels" not in batches[0]:
            return None
        counts = [_targets_of(batch, shift).ne(IGNORED).sum() for batch in batches]
    except (AttributeError, TypeError, IndexError):  # e.g. lists of boxes, or a batch that is no dict
        return None
    return counts[0] if len(counts) == 1 else torch.stack(counts).sum()


def _targets_of(batch: Any, shift: bool) -> Tensor:
    if "shift_labels" in batch:
        chosen: Tensor = batch["shift_labels"]
        return chosen
    labels: Tensor = batch["labels"]
    return labels[..., 1:] if shift else labels


def global_count(
    count: Tensor | None, device: torch.device, *, over_ranks: bool = True, replicas: int = 1
) -> Tensor | None:
    """Return the count that a loss is divided by, from that of one process. On all processes.

    Args:
        count: Result of `count_targets`.
        device: Device of the loss.
        over_ranks: Add the counts of all processes (`average_tokens_across_devices`).
        replicas: Devices of one process (`nn.DataParallel`); each gets its share, or with `over_ranks` the whole, as a
            column of shape (replicas, 1).
    """
    if count is None:
        return None
    count = count.to(device, non_blocking=True)
    if over_ranks:
        count = collectives.sum_over_ranks(count)
    elif replicas > 1:
        count = count // replicas
    return count.expand(replicas, 1) if replicas > 1 else count


def loss_of(outputs: Any, inputs: Mapping[str, Any]) -> Tensor:
    """Return the loss that a model returned: under `loss`, or first in a tuple.

    Raises ValueError if a mapping has none, or if the model returned a tensor that is not a scalar.
    """
    if isinstance(outputs, Tensor) and outputs.ndim > 0:
        raise ValueError(
            f"The model returned one tensor of shape {tuple(outputs.shape)}, which is not a loss. Let forward return "
            "the loss first when it is given labels, override compute_loss, or give compute_loss_func."
        )
    if isinstance(outputs, Mapping):
        if outputs.get("loss") is None:
            labelled = "labels" in inputs
            remedy = (
                "The model takes labels but computes no loss: override compute_loss, or give compute_loss_func."
                if labelled
                else "Give it labels (label_names says which inputs are labels), override compute_loss, or give "
                "compute_loss_func."
            )
            raise ValueError(
                f"The model did not return a loss from the inputs ({', '.join(inputs)}), only: {', '.join(outputs)}. "
                f"{remedy}"
            )
        loss: Tensor = outputs["loss"]
        return loss
    if not hasattr(outputs, "__getitem__"):
        raise TypeError(
            f"The model returned a {type(outputs).__name__}, in which no loss can be found. Let forward return a tuple "
            "that begins with the loss, or a dict or ModelOutput that has it; or override compute_loss."
        )
    first: Tensor = outputs if isinstance(outputs, Tensor) else outputs[0]
    return first


@dataclass
class LabelSmoother:
    """Cross-entropy with label smoothing: targets keep 1 - epsilon, and epsilon is spread over all classes.

    Source: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", CVPR 2016, section 7.
    """

    epsilon: float = 0.1
    ignore_index: int = IGNORED
    is_used: bool = field(default=False, init=False, compare=False, repr=False)

    def __call__(
        self, model_output: Any, labels: Tensor, shift_labels: bool = False, num_items_in_batch: Count = None
    ) -> Tensor:
        """Return the mean over the targets, shape ().

        Args:
            model_output: A mapping with `logits` (..., C), or a tuple that begins with them.
            labels: (...) or (..., 1), `ignore_index` at positions without a target.
            shift_labels: Compare position t with label t+1.
            num_items_in_batch: Divisor of the sum; None: the number of targets in `labels`.
        """
        self.is_used = True
        logits = model_output["logits"] if isinstance(model_output, Mapping) else model_output[0]
        if shift_labels:
            logits, labels = logits[..., :-1, :], labels[..., 1:]
        if labels.is_floating_point():
            raise ValueError(
                f"label_smoothing_factor: labels are {labels.dtype}, and smoothing spreads classes. Give integers, or "
                "leave the factor out."
            )
        labels_N = labels.reshape(-1).to(logits.device)
        loss_sum = functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]).float(),
            labels_N,
            ignore_index=self.ignore_index,
            label_smoothing=self.epsilon,
            reduction="sum",
        )
        if num_items_in_batch is None:
            return loss_sum / labels_N.ne(self.ignore_index).sum()
        if isinstance(num_items_in_batch, Tensor):
            num_items_in_batch = num_items_in_batch.to(loss_sum.device)
        return loss_sum / num_items_in_batch


def smoother_for(epsilon: float, model: nn.Module) -> LabelSmoother | None:
    """Return the smoother for `label_smoothing_factor`; None for 0, and for multi-label classification."""
    if epsilon == 0:
        return None
    kind = getattr(getattr(model, "config", None), "problem_type", None)
    if kind == "multi_label_classification":
        warn_user(
            "Label smoothing is not compatible with multi-label classification. Disabling label smoothing for this "
            "training run: each row has several labels.",
            UserWarning,
        )
        return None
    return LabelSmoother(epsilon)


CORRECTABLE = ("accepts_count", "label_names", "returns_loss", "smoother")
"""Properties in `LossFacts` that are attributes of the Trainer, too, which users set."""


@dataclass
class LossFacts:
    """Properties of the model's loss, determined once; users override them by attributes of the Trainer.

    Attributes:
        accepts_count: whether the model accepts the number of targets of the update (`model_accepts_loss_kwargs`).
        ignores_count: whether it accepts the number, but returns a plain mean; measured in training, if it matters.
        sums_rows: whether it ignores the number because it returns the sum over rows (CTC).
        averages_rows: whether it ignores the number because it returns a mean over rows that may have several targets.
        averages_targets: whether it is known to return a mean over targets.
        shifts_labels: whether its own loss compares position t with label t+1.
        label_names: names of the inputs that are targets.
        returns_loss: whether it computes a loss without labels (`can_return_loss`).
        smoother: the label smoother (`label_smoother`), None without smoothing.
        smoother_shifts_labels: whether it must shift labels.
    """

    accepts_count: bool = False
    ignores_count: bool = False
    sums_rows: bool = False
    averages_rows: bool = False
    averages_targets: bool = False
    shifts_labels: bool = False
    label_names: list[str] = field(default_factory=list)
    returns_loss: bool = False
    smoother: LabelSmoother | None = None
    smoother_shifts_labels: bool = False

    @classmethod
    def of(cls, model: nn.Module, *, names: list[str] | None, smoothing: float) -> LossFacts:
        """Determine the properties of a model.

        Args:
            model: unwrapped.
            names: names of the targets, if the arguments have them.
            smoothing: `label_smoothing_factor`.
        """
        config = getattr(model, "config", None)
        return cls(
            accepts_count=accepts_count(model),
            ignores_count=ignores_count(model),
            sums_rows=getattr(config, "ctc_loss_reduction", None) == "sum",
            averages_targets=averages_targets(model),
            shifts_labels=shifts_labels(model),
            label_names=label_names(model) if names is None else names,
            returns_loss=returns_loss(model),
            smoother=smoother_for(smoothing, model),
            smoother_shifts_labels=smoother_shifts_labels(model),
        )
