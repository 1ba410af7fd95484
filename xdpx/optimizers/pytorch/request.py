"""The settings of an optimizer in x-train or the Trainer, read key by key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Protocol

from xdpx.utils.decisions import TRUE_WORDS

if TYPE_CHECKING:
    from torch import nn

Kwargs = dict[str, Any]
Chosen = tuple[Any, Kwargs]
"""(class of the optimizer, or of factories called with the model; arguments of the class)."""


ADAM = "adam_"
"""How the names of the settings begin that only Adam and its variants have."""


class OptimizerArguments(Protocol):
    """The settings that are read from the arguments of a Trainer."""

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
    """The same settings of a run of x-train."""

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
        """Return the settings from the typed parameters of an optimizer; defaults for keys that it does not have."""
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
class OptimizerRequest:
    """A request for an optimizer.

    Attributes:
        args: settings.
        model: the model, if the optimizer needs it.
        name: of the optimizer.
        extra: the pairs of `optim_args`.
        asked: extra keys, optim_target_modules, and `ADAM` for the numbers of Adam, if the optimizer has read them.
    """

    args: OptimizerArguments
    model: nn.Module | None
    name: str
    extra: Mapping[str, str]
    asked: set[str] = field(default_factory=set)

    def refuse_unread(self) -> None:
        """Raise ValueError if there are extra keys that the optimizer has not read."""
        unread = ", ".join(sorted(self.extra.keys() - self.asked))
        if unread:
            raise ValueError(f"optim_args: has {unread}, which '{self.name}' does not take. Remove it.")

    def unread_of_adam(self) -> list[str]:
        """Return the settings of Adam that are not the usual ones, if the optimizer has read none of them."""
        usual = [] if ADAM in self.asked else [each for each in fields(Settings) if each.name.startswith(ADAM)]
        return [each.name for each in usual if getattr(self.args, each.name) != each.default]

    @property
    def rate(self) -> Kwargs:
        """The learning rate, as argument of any optimizer."""
        return {"lr": self.args.learning_rate}

    @property
    def adam(self) -> Kwargs:
        """The learning rate, betas and eps, as arguments of Adam and its variants."""
        self.asked.add(ADAM)
        betas = (self.args.adam_beta1, self.args.adam_beta2)
        return {**self.rate, "betas": betas, "eps": self.args.adam_epsilon}

    def number(self, key: str, default: float) -> float:
        """Return the value of an extra key as float. Raises ValueError if it is not a number."""
        return float(self._read(key, default, float))

    def whole(self, key: str, default: int) -> int:
        """Return the value of an extra key as int. Raises ValueError if it is not a whole number."""
        return int(self._read(key, default, int))

    def text(self, key: str, default: str) -> str:
        """Return the value of an extra key as text."""
        text = self._written(key)
        return default if text is None else text

    def switch(self, key: str, default: bool = False) -> bool:
        """Return the value of an extra key as bool; a text that is not in `TRUE_WORDS` is False."""
        text = self._written(key)
        return default if text is None else text.lower() in TRUE_WORDS

    def numbers(self, *keys: str) -> Kwargs:
        """Return the given ones of these extra keys as floats."""
        return {key: self.number(key, 0.0) for key in keys if key in self.extra}

    def switches(self, *keys: str) -> Kwargs:
        """Return the given ones of these extra keys as bools."""
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


def pairs(text: str | Mapping[str, object] | None) -> dict[str, str]:
    """Parse "key=value, key=value" (`optim_args`), or a dict. Raises ValueError if a part is not such a pair."""
    if isinstance(text, Mapping):
        return {key: str(value) for key, value in text.items()}
    found = {}
    for part in filter(None, (text or "").replace(" ", "").split(",")):
        key, equals, value = part.partition("=")
        if not (key and equals) or "=" in value:
            remedy = "Write comma-separated key=value pairs, e.g. 'momentum=0.9'."
            raise ValueError(f"optim_args: '{part}' is not a pair. {remedy}")
        found[key] = value
    return found
