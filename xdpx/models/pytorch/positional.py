"""Wrap a network with positional inputs for export; wrap an exported program as a network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

LOGITS = "logits"
"""Name of the output of a network that returns one tensor."""


class Positional(nn.Module):
    """A network whose inputs come in a fixed order, and whose outputs are tensors only.

    Args:
        model: takes its inputs by name.
        inputs: their names in order.
    """

    def __init__(self, model: nn.Module, inputs: Sequence[str]) -> None:
        super().__init__()
        self.model = model
        self._names = tuple(inputs)

    def forward(self, *given: Tensor) -> Any:
        """Return the output, or a tuple of the outputs that are not None."""
        found = self.model(**dict(zip(self._names, given, strict=True)))
        return _wide(found) if isinstance(found, Tensor) else tuple(_wide(each) for each in found if each is not None)


def _wide(found: Tensor) -> Tensor:
    """Return bfloat16, which numpy lacks, as float32, and others as they are."""
    return found.float() if found.dtype == torch.bfloat16 else found


def output_form(found: object) -> list[str | None] | None:
    """Return the names of a network's outputs, in order, None for those that are None.

    Returns:
        None for a network that returns other things than tensors.
    """
    if isinstance(found, Tensor):
        return [LOGITS]
    if not isinstance(found, tuple) or not all(each is None or isinstance(each, Tensor) for each in found):
        return None
    names = getattr(found, "_fields", [f"output_{index}" for index in range(len(found))])
    return [None if each is None else str(name) for name, each in zip(names, found, strict=True)]


class FromFile(nn.Module):
    """A network executed by another program.

    Args:
        run: from arrays by name to arrays by name.
        inputs: names of its input arrays.
        form: result of `output_form` for the exported network.
    """

    def __init__(
        self, run: Callable[[Mapping[str, Any]], Mapping[str, Any]], inputs: Sequence[str], form: Sequence[str | None]
    ) -> None:
        super().__init__()
        self._run, self._inputs, self._form = run, tuple(inputs), tuple(form)

    def forward(self, **net_input: Tensor) -> Any:
        """Return the single output, or a tuple of outputs with None as in `form`.

        Raises:
            TypeError: an input is missing.
        """
        missing = [name for name in self._inputs if name not in net_input]
        if missing:
            raise TypeError(f"the network takes {', '.join(self._inputs)}; missing: {', '.join(missing)}")
        found = self._run({name: net_input[name].cpu().numpy() for name in self._inputs})
        outputs = [None if name is None else torch.from_numpy(found[name]) for name in self._form]
        return outputs[0] if self._form == (LOGITS,) else tuple(outputs)
