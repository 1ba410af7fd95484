"""What a user wrote about an optimizer, read key by key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import nn

Kwargs = dict[str, Any]
Chosen = tuple[Any, Kwargs]
"""A class of optimizers (or a class of factories, called with the model) and what it is built with."""

TRUE = frozenset({"true", "1", "yes", "on", "y", "t"})


class Wishes(Protocol):
    """What is read from the arguments of a training."""

    optim: str
    optim_args: str | None
    optim_target_modules: None | str | list[str]
    learning_rate: float
    weight_decay: float
    adam_beta1: float
    adam_beta2: float
    adam_epsilon: float
    warmup_steps: float


@dataclass(frozen=True)
class Request:
    """One optimizer that is asked for: by which name, for which model, with which extra keys."""

    args: Wishes
    model: nn.Module | None
    name: str
    extra: Mapping[str, str]

    @property
    def rate(self) -> Kwargs:
        """The learning rate, as every optimizer takes it."""
        return {"lr": self.args.learning_rate}

    @property
    def adam(self) -> Kwargs:
        """The learning rate and what the Adam family takes beside it."""
        betas = (self.args.adam_beta1, self.args.adam_beta2)
        return {**self.rate, "betas": betas, "eps": self.args.adam_epsilon}

    def number(self, key: str, default: float) -> float:
        """Give an extra key as a number. Raises ValueError where it is none."""
        return float(self._read(key, default, float))

    def whole(self, key: str, default: int) -> int:
        """Give an extra key as a whole number. Raises ValueError where it is none."""
        return int(self._read(key, default, int))

    def text(self, key: str, default: str) -> str:
        """Give an extra key as it was written."""
        return self.extra.get(key, default)

    def switch(self, key: str, default: bool = False) -> bool:
        """Give an extra key as yes or no."""
        return self.extra[key].lower() in TRUE if key in self.extra else default

    def numbers(self, *keys: str) -> Kwargs:
        """Give those of the extra keys that were written, as numbers."""
        return {key: self.number(key, 0.0) for key in keys if key in self.extra}

    def switches(self, *keys: str) -> Kwargs:
        """Give those of the extra keys that were written, as yes or no."""
        return {key: self.switch(key) for key in keys if key in self.extra}

    def _read(self, key: str, default: float, kind: Callable[[str], float]) -> float:
        if key not in self.extra:
            return default
        try:
            return kind(self.extra[key])
        except ValueError as error:
            what = "a whole number" if kind is int else "a number"
            raise ValueError(f"optim_args: {key} is '{self.extra[key]}'. Use {what}, e.g. {key}={default}.") from error


def pairs(text: str | None) -> dict[str, str]:
    """Read "key=value, key=value" (`optim_args`). Raises ValueError where a part is no pair."""
    return dict(_pair(part) for part in _parts(text))


def _parts(text: str | None) -> Iterator[str]:
    return (part for part in (text or "").replace(" ", "").split(",") if part)


def _pair(part: str) -> tuple[str, str]:
    key, equals, value = part.partition("=")
    if not (key and equals) or "=" in value:
        raise ValueError(f"optim_args: '{part}' is no pair. Write key=value pairs with commas, e.g. 'momentum=0.9'.")
    return key, value
