"""Fine-tuning techniques as callbacks: freezing parts of a model for some time, and noise on its embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from xdpx.config.faults import refusal
from xdpx.logger import log

if TYPE_CHECKING:
    from torch import nn

    from xdpx.models.pytorch.modules.neftune import Handle


class Steps(Protocol):
    """The fields of the training state that these callbacks read."""

    global_step: int
    max_steps: int


class Freezing:
    """Freezes parts of the model, until an update or to the end.

    In a config: `callbacks: [{freeze: {until: {embeddings: null, "layer.0.": 200, "layer.1.": 0.1}}}]`. Listing the
    layers from the top with later and later updates is gradual unfreezing: Howard and Ruder, "Universal Language Model
    Fine-tuning for Text Classification", ACL 2018, section 3.3.

    Args:
        until: substring of the names of weights -> the update (int), or share of all updates (float), up to which they
            are frozen; None: to the end. If several match, the last one counts.

    Raises:
        ConfigError: an update is negative, or no number.
    """

    changes_model = True

    def __init__(self, until: Mapping[str, int | float | None]) -> None:
        self.until = dict(until)
        wrong = {part: end for part, end in self.until.items() if end is not None and not _is_size(end)}
        if wrong:
            problem = f"freeze: until has {wrong}. Use an update such as 200, a share such as 0.1, or null for the end."
            raise refusal("callbacks", problem, "")
        self._frozen: list[tuple[nn.Parameter, float]] = []  # weights, and the update up to which they are frozen

    def on_train_begin(
        self, args: object, state: Steps, control: object, *, model: nn.Module, **kwargs: object
    ) -> None:
        """Find the weights. Raises ConfigError if a substring matches no name, or if nothing would be left to train."""
        weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        unknown = [part for part in self.until if not any(part in name for name in weights)]
        if unknown:
            some = ", ".join(list(weights)[:3])
            problem = f"freeze: no trained weight has {unknown} in its name."
            raise refusal("callbacks", problem, f"Use parts of names such as {some}.")
        ends = {
            name: _last(self.until[part], state.max_steps) for part in self.until for name in weights if part in name
        }
        self._tell_of_ends_after(state.max_steps)
        if len(ends) == len(weights) and min(ends.values()) > 0:
            problem = "freeze: nothing is left to train in the first update."
            raise refusal("callbacks", problem, "Leave out a part of the model.")
        self._frozen = [(weights[name], end) for name, end in ends.items()]

    def _tell_of_ends_after(self, total: int) -> None:
        late = {part: until for part, until in self.until.items() if until is not None and _last(until, total) >= total}
        if late and total > 0:
            log.warning(
                f"callbacks: freeze: {late} never trains these weights, as training has {total} updates. Use less, or "
                "a share such as 0.1; null says that they stay frozen."
            )

    def on_step_begin(self, args: object, state: Steps, control: object, **kwargs: object) -> None:
        """Freeze and unfreeze weights for the coming update; also correct after a resume."""
        for weight, end in self._frozen:
            weight.requires_grad_(state.global_step >= end)


def _is_size(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _last(until: int | float | None, total: int) -> float:
    if until is None:
        return float("inf")
    return until * total if isinstance(until, float) else until


class NoisyEmbeddings:
    """NEFTune: uniform noise on the token vectors in training; in a config `callbacks: [{neftune: {alpha: 5.0}}]`.

    Source: Jain et al., "NEFTune: Noisy Embeddings Improve Instruction Finetuning", ICLR 2024, algorithm 1.

    Args:
        alpha: size of the noise, > 0; the paper uses 5 to 15.
    """

    changes_model = True

    def __init__(self, alpha: float = 5.0) -> None:
        if not _is_size(alpha):
            raise refusal("callbacks", f"neftune: alpha is {alpha!r}. Use a number above 0, e.g. 5.0.", "")
        self.alpha = alpha
        self._handle: Handle | None = None

    def on_train_begin(
        self, args: object, state: Steps, control: object, *, model: nn.Module, **kwargs: object
    ) -> None:
        """Attach the hook. Raises ConfigError if the model has no token embeddings."""
        from xdpx.models.pytorch.modules.neftune import attach  # imports torch, which --dry avoids

        try:
            self._handle = attach(model, self.alpha)
        except (AttributeError, ValueError) as error:
            raise refusal("callbacks", f"neftune: {error}", "") from error

    def on_train_end(self, args: object, state: Steps, control: object, **kwargs: object) -> None:
        """Remove the hook."""
        if self._handle is not None:
            self._handle.remove()
