"""A network as other programs run it: tensors in a fixed order in, tensors out; and such a program as a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

LOGITS = "logits"
"""What the output is called of a network that gives one tensor."""


class Positional(nn.Module):
    """A network whose inputs come in a fixed order, and whose outputs are tensors alone.

    Args:
        model: takes its inputs by name.
        inputs: their names in order.
    """

    def __init__(self, model: nn.Module, inputs: Sequence[str]) -> None:
        super().__init__()
        self.model = model
        self._names = tuple(inputs)

    def forward(self, *given: Tensor) -> Any:
        """Return the output, or a tuple of the outputs that are there."""
        found = self.model(**dict(zip(self._names, given, strict=True)))
        return found if isinstance(found, Tensor) else tuple(each for each in found if each is not None)


def output_form(found: object) -> list[str | None] | None:
    """Return what the outputs of a network are called, in order, None for those that are not there.

    Returns:
        None for a network that gives something else than tensors.
    """
    if isinstance(found, Tensor):
        return [LOGITS]
    if not isinstance(found, tuple) or not all(each is None or isinstance(each, Tensor) for each in found):
        return None
    names = getattr(found, "_fields", [f"output_{index}" for index in range(len(found))])
    return [None if each is None else str(name) for name, each in zip(names, found, strict=True)]


class FromFile(nn.Module):
    """A network that another program runs.

    Args:
        run: takes arrays by name, gives arrays by name.
        inputs: the names of the arrays that it takes.
        form: as `output_form` returned it of the network that was written.
    """

    def __init__(
        self, run: Callable[[Mapping[str, Any]], Mapping[str, Any]], inputs: Sequence[str], form: Sequence[str | None]
    ) -> None:
        super().__init__()
        self._run, self._inputs, self._form = run, tuple(inputs), tuple(form)

    def forward(self, **net_input: Tensor) -> Any:
        """Return the one output, or a tuple of them with None for those that are not there.

        Raises:
            TypeError: the processor gives other inputs.
        """
        missing = [name for name in self._inputs if name not in net_input]
        if missing:
            raise TypeError(f"the network takes {', '.join(self._inputs)}; missing: {', '.join(missing)}")
        found = self._run({name: net_input[name].cpu().numpy() for name in self._inputs})
        outputs = [None if name is None else torch.from_numpy(found[name]) for name in self._form]
        return outputs[0] if self._form == (LOGITS,) else tuple(outputs)
