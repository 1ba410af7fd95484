"""Common base of models whose whole network is from transformers: config.json, and weight decay."""

from __future__ import annotations

from typing import Any, TypeVar

from torch import nn
from transformers import PretrainedConfig

from xdpx.config.faults import first_few, refusal
from xdpx.logger import log
from xdpx.models.pytorch import weights
from xdpx.models.pytorch.base import Model, ReadWeights
from xdpx.utils.weight_decay import decays

CONFIG_FILE = "config.json"
C = TypeVar("C", bound=PretrainedConfig)


class LibraryModel(Model):
    """A network of transformers.

    Attributes:
        config: its architecture, a config of Hugging Face.
    """

    config: PretrainedConfig

    def load_pretrained(self, read_weights: ReadWeights) -> None:
        """As `Model.load_pretrained`; a warning tells of missing weights, as such a network has no part that is new."""
        super().load_pretrained(read_weights)
        if self.not_in_file:
            lacking = first_few(self.not_in_file, weights.MOST_NAMES_SHOWN)
            source = self.parameters_used.pretrained_model
            log.warning(f"{source}: lacks {lacking}, random at first. Is the file whole?")

    def parameter_groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """Return groups by weight decay; norms and biases have none."""
        groups: dict[str, list[nn.Parameter]] = {"all": [], "all, no decay": []}
        for name, weight in self.named_parameters():
            if weight.requires_grad:
                groups["all" if decays("library", name, weight.ndim) else "all, no decay"].append(weight)
        decayed = {"params": groups["all"], "lr": learning_rate, "name": "all"}
        return [decayed, {**decayed, "params": groups["all, no decay"], "name": "all, no decay", "weight_decay": 0.0}]

    def resource_files(self) -> dict[str, str]:
        """Return config.json in Hugging Face format."""
        return {CONFIG_FILE: self.config.to_json_string(use_diff=False)}


def config_beside(source: str | None, kind: type[C]) -> C | None:
    """Return the config beside pretrained weights, if any.

    Raises:
        ConfigError: it describes another kind of model.
    """
    path = weights.config_file(source) if source else None
    if path is None:
        return None
    values = weights.read_table(path)
    found = values.pop("model_type", kind.model_type)
    if found != kind.model_type:
        problem = f"is '{source}', whose config.json describes a {found}."
        remedy = f"Use a model of the type {kind.model_type}."
        raise refusal("pretrained_model", problem, remedy)
    config: C = kind(**values)
    return config


def refuse_vocabulary(ours: int, theirs: int, *, strict_size: bool) -> None:
    """Raise ConfigError if the data has another vocabulary than the pretrained model and `strict_size` is true."""
    if strict_size:
        problem = f"is {ours} in the data, but the pretrained model knows {theirs} tokens."
        remedy = "Preprocess with the tokens of that model, or set strict_size: false for new embeddings."
        raise refusal("vocab_size", problem, remedy)
