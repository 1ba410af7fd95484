"""Optimizers that project the gradients of selected linear layers to a low rank (GaLore, APOLLO)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from xdpx.logger import log
from xdpx.optimizers.pytorch.request import Chosen, Kwargs, OptimizerRequest


def chosen(request: OptimizerRequest, kind: type, rank: Kwargs, kwargs: Kwargs) -> Chosen:
    """Return the class and its arguments, with two groups: of all other weights, and of the projected ones.

    Args:
        request: The request; with a name that ends in `layerwise`, each weight is stepped within the backward pass.
        kind: The class of the optimizer.
        rank: Settings of the group of the projected weights.
        kwargs: Arguments of the class.

    Raises:
        ValueError: There is no model or no `optim_target_modules`, or no layer matches; or a layerwise optimizer is
            used with gradient accumulation.
        TypeError: `optim_target_modules` is neither a list nor a string.
        NotImplementedError: A layerwise optimizer is used with several processes.
    """
    names = _targets(request)
    trained = list(request.model.named_parameters()) if request.model is not None else []
    groups: list[Kwargs] = [
        {"params": [weight for name, weight in trained if name not in names]},
        {"params": [weight for name, weight in trained if name in names], **rank},
    ]
    if not request.name.endswith("layerwise"):
        return kind, {**kwargs, "params": groups}
    _refuse_what_layers_cannot(request)
    return Layerwise, {**kwargs, "params": groups, "kind": kind}


def split(groups: Iterable[Kwargs], picked: Iterable[Kwargs]) -> list[Kwargs]:
    """Split the groups of a model by the groups of `chosen`; settings of the model's groups take precedence."""
    pieces = []
    for group in groups:
        for part in picked:
            chosen_ones = {id(weight) for weight in part["params"]}
            weights = [weight for weight in group["params"] if id(weight) in chosen_ones]
            pieces += [{**part, **group, "params": weights}] if weights else []
    return pieces


def _targets(request: OptimizerRequest) -> frozenset[str]:
    wanted = request.args.optim_target_modules
    request.asked.add("optim_target_modules")
    example = "e.g. optim_target_modules=['attn', 'mlp'], a regular expression, or 'all-linear'"
    if wanted is None:
        raise ValueError(f"optim: '{request.name}' projects chosen layers. Say which: {example}.")
    if not isinstance(wanted, str | list):
        raise TypeError(f"optim_target_modules: is a {type(wanted).__name__}. Use a list or a string: {example}.")
    if request.model is None:
        raise ValueError(f"optim: '{request.name}' picks layers of a model. Give the model.")
    found = [f"{name}.weight" for name, module in request.model.named_modules() if _is_meant(wanted, name, module)]
    if not found:
        linear = [name for name, module in request.model.named_modules() if isinstance(module, nn.Linear)]
        raise ValueError(
            f"optim_target_modules: no linear layer matches {wanted!r}. Use {example}. "
            f"The model has {len(linear)} linear layers: {', '.join(linear[:5]) or 'none'}{', …' * (len(linear) > 5)}."
        )
    return frozenset(found)


def _is_meant(wanted: str | list[str], name: str, module: nn.Module) -> bool:
    if isinstance(wanted, str):
        every = wanted.replace("_", "-") == "all-linear"
        return isinstance(module, nn.Linear) and (every or re.fullmatch(wanted, name) is not None)
    plain = any(part in name for part in wanted)
    if plain and not isinstance(module, nn.Linear):
        log.warning(f"optim_target_modules: {name} matches, but is not a linear layer; only those are projected.")
    meant = plain or any(re.fullmatch(pattern, name) for pattern in wanted)
    return meant and isinstance(module, nn.Linear)


def _refuse_what_layers_cannot(request: OptimizerRequest) -> None:
    mode = getattr(request.args, "parallel_mode", None)
    if str(getattr(mode, "value", mode)) == "distributed":
        raise NotImplementedError(
            f"optim: '{request.name}' steps within the backward pass, before gradients meet those of other processes. "
            f"Use '{request.name.removesuffix('_layerwise')}', or one process."
        )
    accumulated = getattr(request.args, "gradient_accumulation_steps", 1)
    if accumulated != 1:
        raise ValueError(
            f"optim: '{request.name}' steps within the backward pass, so gradient_accumulation_steps must be 1, not "
            f"{accumulated}. Use '{request.name.removesuffix('_layerwise')}' to accumulate."
        )


class Layerwise(torch.optim.Optimizer):
    """One optimizer per weight, which steps within the backward pass, and then frees the gradient.

    So only one gradient is in memory at a time. `step` and `zero_grad` do nothing; the parameter groups and the state
    are those of the single optimizers, so that any schedule can be used.
    """

    def __init__(self, params: Iterable[Kwargs], *, kind: type[torch.optim.Optimizer], **kwargs: Any) -> None:
        drawn = torch.randn(1, 1)  # transformers draws one number here; keeps later random numbers equal to its
        super().__init__([drawn], {"lr": kwargs.get("lr", 1e-3)})
        self.layers: dict[nn.Parameter, torch.optim.Optimizer] = {
            weight: kind([{**group, "params": [weight]}], **kwargs) for group in params for weight in group["params"]
        }
        self.param_groups = [group for layer in self.layers.values() for group in layer.param_groups]
        self._hooks = [
            weight.register_post_accumulate_grad_hook(self._step_one)  # type: ignore[no-untyped-call]
            for weight in self.layers
            if weight.requires_grad
        ]

    def _step_one(self, weight: torch.Tensor) -> None:
        layer = self.layers[weight]  # type: ignore[index]
        if weight.grad is not None:
            layer.step()
            layer.zero_grad()

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Do nothing: every weight was stepped within the backward pass."""

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Do nothing: gradients are freed within the backward pass."""

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all single optimizers, in the order of the weights."""
        return {"layers": [layer.state_dict() for layer in self.layers.values()]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the result of `state_dict`. Raises ValueError if the number of weights differs."""
        saved = state_dict.get("layers", [])
        if len(saved) != len(self.layers):
            raise ValueError(
                f"The saved state has {len(saved)} weights, this model {len(self.layers)}. Load the model it is from."
            )
        for layer, state in zip(self.layers.values(), saved, strict=True):
            layer.load_state_dict(state)
        self.param_groups = [group for layer in self.layers.values() for group in layer.param_groups]

    def detach(self) -> None:
        """Remove the hooks from the weights."""
        for hook in self._hooks:
            hook.remove()
