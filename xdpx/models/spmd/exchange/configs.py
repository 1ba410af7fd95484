"""Read a config.json of Hugging Face, and refuse options that are not supported here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from xdpx.config.faults import ConfigError, Fault, did_you_mean, nearest
from xdpx.models.spmd.layers.activations import GELU, BaseActivation, ReLU, SiLU, Tanh

SOURCE = "config.json"
PLAIN_ROTATIONS = (None, "default")
"""Kinds of rotary positions without scaling."""


@dataclass(frozen=True)
class Known:
    """The options of a family of models.

    Attributes:
        model_types: values of `model_type`.
        needed: keys that it must have.
        refused: by key: the only supported value, and the meaning of others.
    """

    model_types: tuple[str, ...]
    needed: tuple[str, ...]
    refused: Mapping[str, tuple[Any, str]] = field(default_factory=dict)


def read_config(config: Mapping[str, Any], known: Known) -> dict[str, Any]:
    """Check the content of a config.json.

    Raises:
        ConfigError: it is of another family, lacks a size, or needs something unsupported; all faults at once.
    """
    faults = [*_family(config, known), *_missing(config, known), *_refused(config, known), *_rotations(config)]
    if faults:
        raise ConfigError(SOURCE, faults)
    return dict(config)


def activation(config: Mapping[str, Any], usual: str = "gelu") -> BaseActivation.HParams:
    """Return the template of `hidden_act`.

    Raises:
        ConfigError: the name is unknown.
    """
    named: dict[str, BaseActivation.HParams] = {
        "gelu": GELU.HParams(approximate=False),
        "gelu_new": GELU.HParams(approximate=True),
        "gelu_pytorch_tanh": GELU.HParams(approximate=True),
        "relu": ReLU.HParams(),
        "silu": SiLU.HParams(),
        "swish": SiLU.HParams(),
        "tanh": Tanh.HParams(),
    }
    name = config.get("hidden_act") or usual
    if name not in named:
        remedy = did_you_mean(str(name), named, f"Use one of: {', '.join(sorted(named))}.")
        raise ConfigError(SOURCE, [Fault("hidden_act", f"is '{name}'.", remedy)])
    return named[name]


def _family(config: Mapping[str, Any], known: Known) -> list[Fault]:
    model_type = config.get("model_type")
    if model_type in known.model_types:
        return []
    return [Fault("model_type", f"is '{model_type}'.", f"Use one of: {', '.join(known.model_types)}.")]


def _missing(config: Mapping[str, Any], known: Known) -> list[Fault]:
    faults = []
    for name in known.needed:
        if config.get(name) is None:
            near = nearest(name, config)
            remedy = f"Did you mean '{near}'?" if near else "Use the config.json that belongs to the weights."
            faults.append(Fault(name, "is not given.", remedy))
    return faults


def _refused(config: Mapping[str, Any], known: Known) -> list[Fault]:
    found = []
    for name, (allowed, meaning) in known.refused.items():
        if config.get(name, allowed) not in {allowed, None}:
            problem = f"is {config[name]!r}: {meaning}, which is not computed here."
            found.append(Fault(name, problem, f"Use a model with {name}: {allowed}."))
    return found


def _rotations(config: Mapping[str, Any]) -> list[Fault]:
    for name in ("rope_parameters", "rope_scaling"):
        kind = (config.get(name) or {}).get("rope_type", (config.get(name) or {}).get("type"))
        if kind not in PLAIN_ROTATIONS:
            return [
                Fault(name, f"stretches positions ('{kind}'), which is not computed here.", "Use a model without it.")
            ]
    return []
