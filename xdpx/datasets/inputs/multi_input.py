"""An input that combines several: each batch contains one batch of each, by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from numpy.typing import NDArray

from xdpx.config.hparams import BaseHParams
from xdpx.datasets.inputs.ahead_of_time import build_input
from xdpx.datasets.inputs.base_input import BaseInput, State, refused
from xdpx.datasets.inputs.rows import num_rows
from xdpx.utils.nested_map import NestedMap


class MultiInput(BaseInput):
    """One batch of each child. The outer batch size is the greatest common divisor of theirs.

    An array of b rows of a child becomes (outer, b / outer, ...), so that all arrays share the first dimension.
    Whether checkpoints contain the positions is decided by the outer input for all children.
    """

    class HParams(BaseInput.HParams):
        """Fields of the input.

        Attributes:
            inputs: name -> HParams of a child.
            default_input: the child to use if no name is given; by default the first one.
        """

        inputs: dict[str, Any] = field(default_factory=dict)
        default_input: str | None = None

    def __init__(self, hparams: BaseHParams) -> None:
        super().__init__(hparams)
        if not hparams.inputs or hparams.default_input not in {None, *hparams.inputs}:
            problem = f"holds {', '.join(hparams.inputs) or 'nothing'}; default_input is {hparams.default_input!r}."
            raise refused(hparams, "inputs", problem, "Give at least one input, and name one as the default.")
        if len(hparams.inputs) > 1 and not hparams.is_training and self.window.resets:
            problem = f"are {len(hparams.inputs)}, and may end at different batches with '{self.window}'."
            raise refused(hparams, "inputs", problem, "Evaluate each by itself, or write eval_window='rolling(n)'.")
        self.children: dict[str, BaseInput] = {name: build_input(child) for name, child in hparams.inputs.items()}

    def get_next(self) -> NestedMap:
        """Return the next batch of every child. Raises StopIteration as soon as one of them ends."""
        batches = {name: child.get_next_padded() for name, child in self.children.items()}
        outer = math.gcd(*map(num_rows, batches.values()))

        def folded(array: NDArray[Any]) -> NDArray[Any]:
            return array.reshape(outer, array.shape[0] // outer, *array.shape[1:])

        return NestedMap({name: batch.Transform(folded) for name, batch in batches.items()})

    def reset(self) -> None:
        """Start all children again from the first batch."""
        super().reset()
        for child in self.children.values():
            child.reset()

    def get_state(self) -> State:
        """Return the positions of all children."""
        return {name: child.get_state() for name, child in self.children.items()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the positions of all children. Raises ValueError if their names differ."""
        if set(state) != set(self.children):
            raise ValueError(
                f"{self.name}: the state is of {', '.join(state)}; the inputs are {', '.join(self.children)}."
            )
        for name, child in self.children.items():
            child.set_state(state[name])

    @property
    def replay(self) -> str:
        """Why the position of a child can only be restored by reading up to it; '' if this is true of none."""
        reasons = ((name, child.replay) for name, child in self.children.items())
        return next((f"of its inputs {name}: {reason}" for name, reason in reasons if reason), "")

    def child(self, key: str | None) -> BaseInput:
        """Return the child with a name, or the default one. Raises KeyError if there is none."""
        name = key or self.hparams.default_input or next(iter(self.children))
        if name not in self.children:
            raise KeyError(f"{self.name} has no input '{name}', only {', '.join(self.children)}.")
        return self.children[name]

    def ids_to_strings(
        self, ids: NDArray[Any], lengths: NDArray[Any] | None = None, key: str | None = None
    ) -> list[str]:
        """Return token ids as texts, by the child named `key`."""
        return self.child(key).ids_to_strings(ids, lengths)

    def tokenizer_digest(self, key: str | None = None) -> str | None:
        """Return the digest of the tokenizer of the child named `key`."""
        return self.child(key).tokenizer_digest()

    def close(self) -> None:
        """Close all children."""
        for child in self.children.values():
            child.close()
