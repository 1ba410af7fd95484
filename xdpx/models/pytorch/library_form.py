"""Express an encoder with its head as a network of transformers, for `from_pretrained` and `pipeline`.

Weights keep their names if those are the library's own, so that a checkpoint can be used without conversion.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
import transformers
from torch import Tensor, nn
from transformers import PretrainedConfig

from xdpx.models.pytorch import encoders
from xdpx.models.pytorch.bert import Bert
from xdpx.models.pytorch.regression import Units

SAME = 1e-5
"""Two values count as equal if they differ by at most SAME * (1 + |x|)."""
_HEAD = re.compile(r"For(SequenceClassification|TokenClassification)$")
_SHOWN = 3
Problem = Literal["single_label_classification", "multi_label_classification", "regression", "tags"]
"""Meaning of a network's outputs, in the words of transformers, which has no word for tags."""


class Inexpressible(ValueError):
    """There is no equivalent in transformers; the message says what is missing."""


@dataclass(frozen=True)
class Form:
    """The equivalent in transformers of a network of ours.

    Attributes:
        kind: `SequenceClassification` or `TokenClassification`; "" for the encoder alone.
        config: for config.json, with the names of the labels.
        names: our name of each weight -> theirs.
        reason: why the head is left out; "" if it is not.
        units: scales the number of a regression, which transformers does not: its head does it there; None otherwise.
    """

    kind: str
    config: PretrainedConfig
    names: Mapping[str, str] = field(repr=False)
    reason: str = ""
    units: Units | None = field(default=None, repr=False)

    @property
    def as_they_are(self) -> bool:
        """Whether a checkpoint of ours can be opened without renaming or scaling its weights."""
        return self.units is None and all(ours == theirs for ours, theirs in self.names.items())

    def build(self) -> Any:
        """Return the library's network, with random weights."""
        auto = getattr(transformers, f"AutoModelFor{self.kind}" if self.kind else "AutoModel")
        return auto.from_config(self.config, trust_remote_code=False)

    def weights(self, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return weights under the library's names, those of the head in the units of the labels."""
        found = dict(ours)
        if self.units is not None:
            spread, centre = self.units.spread.cpu(), self.units.centre.cpu()
            found["classifier.weight"] = ours["classifier.weight"] * spread
            found["classifier.bias"] = ours["classifier.bias"] * spread + centre
        return {theirs: found[name] for name, theirs in self.names.items()}


def form_of(model: nn.Module, problem: Problem | None, labels: Sequence[str] | None) -> Form:
    """Return the equivalent of a network; only the encoder if there is no such head in transformers.

    Args:
        model: the network.
        problem: meaning of the outputs; None if transformers has no word for it.
        labels: names of the classes.

    Raises:
        Inexpressible: it has no encoder of transformers.
    """
    if not isinstance(model, Bert):
        raise Inexpressible(f"{type(model).__name__} is not an encoder of transformers with a head")
    try:
        config, kind = _with_labels(model, problem, labels)
        units = getattr(model, "units", None)
        scales = units is not None and (float(units.spread), float(units.centre)) != (1.0, 0.0)
        return replace(_named(model, config, kind), units=units if scales else None)
    except Inexpressible as error:
        config = _plain(model.config)
        config.architectures = None
        form = _named(model, config, "")
        return Form("", config, form.names, str(error))


def _with_labels(model: Bert, problem: Problem | None, labels: Sequence[str] | None) -> tuple[PretrainedConfig, str]:
    """Return the config with labels and problem type for a pipeline, and the kind of head."""
    head = _HEAD.search(next(iter(model.config.architectures or [""])))
    if head is None:
        raise Inexpressible(f"the head of {type(model).__name__} is not from transformers")
    config, kind, count = _plain(model.config), head[1], int(model.config.num_labels or 0)
    tags = kind == "TokenClassification"
    if tags and getattr(model, "neighbours", None) is not None:
        raise Inexpressible("use_crf scores the tags of a text together")
    if problem is None or tags != (problem == "tags") or (problem == "regression" and count != 1):
        raise Inexpressible("a pipeline interprets the outputs differently from the loss of this run")
    if problem != "tags":
        config.problem_type = problem
    if labels is not None and len(labels) == count:
        config.id2label = dict(enumerate(labels))
        config.label2id = {label: index for index, label in enumerate(labels)}
    return config, kind


def _plain(config: PretrainedConfig) -> PretrainedConfig:
    """Return a copy without the attention implementation of this process."""
    values = {name: value for name, value in config.to_dict().items() if "attn_implementation" not in name}
    return type(config).from_dict(values)


def _named(model: Bert, config: PretrainedConfig, kind: str) -> Form:
    """Return the form with the library's name of each weight.

    Raises:
        Inexpressible: one of the networks has weights that the other lacks.
    """
    form = Form(kind, config, {})
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            network = form.build()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Inexpressible(f"transformers has no {kind or 'encoder'} for {config.model_type}") from error
    ours, theirs = model.state_dict(), network.state_dict()
    # For an encoder alone the library strips its own prefix.
    prefix = f"{network.base_model_prefix}." if kind or network.base_model_prefix == "bert" else ""
    names = {name: _renamed(name, prefix, theirs) for name in ours}
    if not kind:
        return Form(kind, config, {name: other for name, other in names.items() if name.startswith("bert.")})
    odd = [name for name, other in names.items() if other not in theirs or theirs[other].shape != ours[name].shape]
    lacking = sorted(set(theirs) - set(names.values()))
    if odd or lacking:
        what = ", ".join((odd or lacking)[:_SHOWN])
        has = f"has no {what}" if odd else f"also has {what}"
        raise Inexpressible(f"{type(network).__name__} {has}")
    config.architectures = [type(network).__name__]
    return Form(kind, config, names)


def _renamed(name: str, prefix: str, theirs: Mapping[str, Any]) -> str:
    """Return the library's name of a weight of ours, whose encoder is always `bert`."""
    if "classifier.out_proj.weight" in theirs and name.startswith(("classifier.", "bert.pooler.", "pooler.")):
        head, _, last = name.rpartition(".")  # RoBERTa's head includes the pooler
        return f"classifier.out_proj.{last}" if head == "classifier" else f"classifier.dense.{last}"
    return f"{prefix}{name.removeprefix('bert.')}" if name.startswith("bert.") else name


# ---- comparison of outputs


def differs(form: Form, network: nn.Module, model: nn.Module, batches: Sequence[Mapping[str, Any]]) -> str:
    """Return a sentence on how much the logits of the library's network differ from ours; "" if they do not.

    Args:
        form: the form of the network, with a head.
        network: result of `form.build`, with our weights.
        model: ours, with the same weights.
        batches: inputs, of several shapes.
    """
    call: Callable[..., Any] = network.eval()
    model.eval()
    worst = 0.0
    named = {"input_ids", "token_type_ids"} if encoders.has_segments(form.config) else {"input_ids"}
    with torch.no_grad():
        for inputs in batches:
            given = {name: value for name, value in inputs.items() if name in named}
            found = call(**given, attention_mask=inputs["attention_mask"].long()).logits.float()
            wanted = model(**inputs)
            if form.kind == "TokenClassification":
                starts, wanted = inputs["word_starts"], wanted.emissions
                found = found.gather(1, starts.unsqueeze(-1).expand(-1, -1, found.shape[-1]))
                found = found * inputs["word_mask"].unsqueeze(-1)
            wanted = wanted.float().reshape(found.shape)
            worst = max(worst, float(((found - wanted).abs() / (1 + wanted.abs())).max()))
    return f"its logits differ by {worst:.1e}" if worst > SAME else ""
