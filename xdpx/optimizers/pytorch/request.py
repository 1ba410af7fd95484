"""What a user wrote about an optimizer, read key by key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import nn

Kwargs = dict[str, Any]
Chosen = tuple[Any, Kwargs]
"""A class of optimizers (or a class of factories, called with the model) and what it is built with."""

TRUE = frozenset({"true", "1", "yes", "on", "y", "t"})


class OptimizerArguments(Protocol):
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


@dataclass
class Settings:
    """The wishes of a run of x-train."""

    optim: str
    optim_args: str | None
    learning_rate: float
    weight_decay: float
    optim_target_modules: None | str | list[str] = None
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8
    warmup_steps: float = 0

    @classmethod
    def of(cls, name: str, known: Any) -> Settings:
        """Translate the keys of an optimizer, `NamedParameters` of some kind; what it does not ask for is unread."""
        more: Kwargs = {}
        if hasattr(known, "adam_betas"):
            first, second = known.adam_betas
            more |= {"adam_beta1": first, "adam_beta2": second, "adam_epsilon": known.adam_eps}
        if hasattr(known, "optim_target_modules"):
            more["optim_target_modules"] = known.optim_target_modules
        return cls(
            name, getattr(known, "optim_args", None), known.learning_rate, getattr(known, "weight_decay", 0.0), **more
        )


@dataclass(frozen=True)
class Request:
    """One optimizer that is asked for: by which name, for which model, with which extra keys."""

    args: OptimizerArguments
    model: nn.Module | None
    name: str
    extra: Mapping[str, str]
    asked: set[str] = field(default_factory=set)  # keys that the optimizer has looked for

    def refuse_unread(self) -> None:
        """Raise ValueError where an extra key was written that the optimizer, chosen by now, has not looked for."""
        unread = ", ".join(sorted(self.extra.keys() - self.asked))
        if unread:
            raise ValueError(f"optim_args: has {unread}, which '{self.name}' does not take. Remove it.")

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
        """Return an extra key as a number. Raises ValueError where it is none."""
        return float(self._read(key, default, float))

    def whole(self, key: str, default: int) -> int:
        """Return an extra key as a whole number. Raises ValueError where it is none."""
        return int(self._read(key, default, int))

    def text(self, key: str, default: str) -> str:
        """Return an extra key as it was written."""
        text = self._written(key)
        return default if text is None else text

    def switch(self, key: str, default: bool = False) -> bool:
        """Return an extra key as yes or no."""
        text = self._written(key)
        return default if text is None else text.lower() in TRUE

    def numbers(self, *keys: str) -> Kwargs:
        """Return those of the extra keys that were written, as numbers."""
        return {key: self.number(key, 0.0) for key in keys if key in self.extra}

    def switches(self, *keys: str) -> Kwargs:
        """Return those of the extra keys that were written, as yes or no."""
        return {key: self.switch(key) for key in keys if key in self.extra}

    def _read(self, key: str, default: float, kind: Callable[[str], float]) -> float:
        text = self._written(key)
        if text is None:
            return default
        try:
            return kind(text)
        except ValueError as error:
            what = "a whole number" if kind is int else "a number"
            raise ValueError(f"optim_args: {key} is '{text}'. Use {what}, e.g. {key}={default}.") from error

    def _written(self, key: str) -> str | None:
        self.asked.add(key)
        return self.extra.get(key)


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
