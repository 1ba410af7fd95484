"""LoRA and other adapters of the package peft: few new weights in a network whose other weights are frozen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from xdpx.config.faults import ConfigError, first_line, refusal

INSIDE = ".base_layer."
"""Part of the names of weights of a layer that an adapter wraps."""


def add(network: nn.Module, wanted: Mapping[str, Any] | None) -> None:
    """Insert adapters into a network, and freeze the rest of it.

    Args:
        network: of transformers.
        wanted: `peft_type` (default LORA) and the fields of its config in peft, e.g. {r: 8, lora_alpha: 16};
            None adds nothing.

    Raises:
        ConfigError: peft is not installed, or rejects the fields.

    Source: Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022; others as peft cites them.
    """
    if wanted is None:
        return
    try:
        import peft
    except ImportError as error:
        raise _fault("needs the package peft, which is not installed here.", "Run: pip install peft.") from error
    rest = dict(wanted)
    name = str(rest.pop("peft_type", "LORA")).upper()
    kinds = {kind.value: config for kind, config in peft.PEFT_TYPE_TO_CONFIG_MAPPING.items()}
    if name not in kinds:
        raise _fault(
            f"has the peft_type '{name}', which peft does not know.", f"Use one of: {', '.join(sorted(kinds))}."
        )
    try:
        peft.inject_adapter_in_model(kinds[name](**rest), network)
    except (TypeError, ValueError) as error:
        problem = f"cannot be added: {first_line(error).rstrip('.')}."
        raise _fault(problem, f"Correct the keys of {kinds[name].__name__} in peft.") from error


def renamed(model: nn.Module, found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a network without adapters under their names in a network with adapters."""
    moved = {name.replace(INSIDE, "."): name for name in model.state_dict() if INSIDE in name}
    return {moved.get(name, name): value for name, value in found.items()}


def _fault(problem: str, remedy: str) -> ConfigError:
    return refusal("adapters", problem, remedy)
