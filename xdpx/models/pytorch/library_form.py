"""An encoder with its head as transformers has it: what `from_pretrained` and `pipeline` open.

Weights keep their names where those are the library's own, so that a checkpoint is a file of the folder as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
import transformers
from torch import Tensor, nn
from transformers import PretrainedConfig

from xdpx.models.pytorch.bert import Bert

SAME = 1e-5
"""Two probabilities, or numbers, count as the same when they differ by no more than SAME * (1 + |x|)."""
_HEAD = re.compile(r"For(SequenceClassification|TokenClassification)$")
_SHOWN = 3
Problem = Literal["single_label_classification", "multi_label_classification", "regression", "tags"]
"""What becomes of the outputs of a network, in the words of transformers, which has no word for tags."""


class Inexpressible(ValueError):
    """transformers has no such network; the text says what it lacks."""


@dataclass(frozen=True)
class Form:
    """How transformers has a network of ours.

    Attributes:
        kind: `SequenceClassification` or `TokenClassification`; "" for the encoder alone.
        config: for config.json, with the names of the labels.
        names: our name of each weight -> theirs.
        reason: why the head is left out; "" where it is not.
    """

    kind: str
    config: PretrainedConfig
    names: Mapping[str, str] = field(repr=False)
    reason: str = ""

    @property
    def as_they_are(self) -> bool:
        """Whether a checkpoint of ours can be opened without renaming its weights."""
        return all(ours == theirs for ours, theirs in self.names.items())

    def build(self) -> Any:
        """Return the library's network, with random weights."""
        auto = getattr(transformers, f"AutoModelFor{self.kind}" if self.kind else "AutoModel")
        return auto.from_config(self.config, trust_remote_code=False)

    def weights(self, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return weights under the library's names."""
        return {theirs: ours[name] for name, theirs in self.names.items()}


def form_of(model: nn.Module, problem: Problem | None, labels: Sequence[str] | None) -> Form:
    """Return how transformers has a network; the encoder alone where it has no such head.

    Args:
        model: the network.
        problem: what becomes of its outputs; None for something that transformers has no word for.
        labels: names of the classes.

    Raises:
        Inexpressible: it is built on no encoder of transformers.
    """
    if not isinstance(model, Bert):
        raise Inexpressible(f"{type(model).__name__} is no encoder of transformers with a head")
    try:
        config, kind = _with_labels(model, problem, labels)
        return _named(model, config, kind)
    except Inexpressible as error:
        config = _plain(model.config)
        config.architectures = None
        form = _named(model, config, "")
        return Form("", config, form.names, str(error))


def _with_labels(model: Bert, problem: Problem | None, labels: Sequence[str] | None) -> tuple[PretrainedConfig, str]:
    """Return the config with what a pipeline makes of the logits, and the kind of head."""
    head = _HEAD.search(next(iter(model.config.architectures or [""])))
    if head is None:
        raise Inexpressible(f"the head of {type(model).__name__} is none of transformers")
    config, kind, count = _plain(model.config), head[1], int(model.config.num_labels or 0)
    tags = kind == "TokenClassification"
    if tags and getattr(model, "neighbours", None) is not None:
        raise Inexpressible("use_crf judges the tags of a text together")
    if problem is None or tags != (problem == "tags") or (problem == "regression" and count != 1):
        raise Inexpressible("a pipeline makes something else of the outputs than the loss of this run")
    if problem != "tags":
        config.problem_type = problem
    if labels is not None and len(labels) == count:
        config.id2label = dict(enumerate(labels))
        config.label2id = {label: index for index, label in enumerate(labels)}
    return config, kind


def _plain(config: PretrainedConfig) -> PretrainedConfig:
    """Return a copy without what says how this process computes attention."""
    values = {name: value for name, value in config.to_dict().items() if "attn_implementation" not in name}
    return type(config).from_dict(values)


def _named(model: Bert, config: PretrainedConfig, kind: str) -> Form:
    """Find the library's name of each weight.

    Raises:
        Inexpressible: one of the two has weights that the other lacks.
    """
    form = Form(kind, config, {})
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            network = form.build()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Inexpressible(f"transformers has no {kind or 'encoder'} for {config.model_type}") from error
    ours, theirs = model.state_dict(), network.state_dict()
    # Of an encoder alone the library takes its own prefix off.
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
    """Return the library's name of a weight of ours, whose encoder is `bert` whatever its kind."""
    if "classifier.out_proj.weight" in theirs and name.startswith(("classifier.", "bert.pooler.", "pooler.")):
        head, _, last = name.rpartition(".")  # RoBERTa counts its pooler to the head
        return f"classifier.out_proj.{last}" if head == "classifier" else f"classifier.dense.{last}"
    return f"{prefix}{name.removeprefix('bert.')}" if name.startswith("bert.") else name


# ---- whether both give the same


def differs(form: Form, network: nn.Module, model: nn.Module, batches: Sequence[Mapping[str, Any]]) -> str:
    """Say by how much the library's network gives other logits than ours for some batches; "" where it does not.

    Args:
        form: of the network, with a head.
        network: as `form.build` returns it, with our weights.
        model: ours, with the same.
        batches: inputs, of several shapes.
    """
    call: Callable[..., Any] = network.eval()
    model.eval()
    worst = 0.0
    with torch.no_grad():
        for inputs in batches:
            given = {name: value for name, value in inputs.items() if name in {"input_ids", "token_type_ids"}}
            found = call(**given, attention_mask=inputs["attention_mask"].long()).logits.float()
            wanted = model(**inputs)
            if form.kind == "TokenClassification":
                starts, wanted = inputs["word_starts"], wanted.emissions
                found = found.gather(1, starts.unsqueeze(-1).expand(-1, -1, found.shape[-1]))
                found = found * inputs["word_mask"].unsqueeze(-1)
            wanted = wanted.float().reshape(found.shape)
            worst = max(worst, float(((found - wanted).abs() / (1 + wanted.abs())).max()))
    return f"its logits differ by {worst:.1e}" if worst > SAME else ""
