"""Recurrent layers as one operation each: torch.export would unroll a step for every position of its example."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

SCHEMA = "(Tensor x, Tensor into, Tensor recurrent, Tensor bias_into, Tensor bias_recurrent) -> Tensor"


@contextmanager
def whole_recurrence(network: nn.Module) -> Generator[None]:
    """Trace LSTMs and GRUs of a network as the operations xdpx.lstm and xdpx.gru inside the `with` block.

    Applies to one layer, one direction, batch first, starting from zeros, as all of ours; others stay as they are.
    The operations return no final states.
    """
    from torch.nn import GRU, LSTM

    changed = []
    for module in network.modules():
        if isinstance(module, LSTM | GRU) and _is_plain(module):
            any_module: Any = module
            any_module.forward = _forward(module, _operation("lstm" if isinstance(module, LSTM) else "gru"))
            changed.append(module)
    try:
        yield
    finally:
        for module in changed:
            del module.forward


def _is_plain(module: Any) -> bool:
    plain = module.num_layers == 1 and not module.bidirectional and module.bias and module.batch_first
    return bool(plain and not getattr(module, "proj_size", 0))


def _forward(module: Any, operation: Callable[..., Tensor]) -> Callable[[Tensor], tuple[Tensor, None]]:
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    return lambda x: (operation(x, *(getattr(module, name) for name in names)), None)


@cache
def _operation(name: str) -> Callable[..., Tensor]:
    """Return xdpx.lstm or xdpx.gru: from (B, T, C), (G H, C), (G H, H), (G H,), (G H,) to (B, T, H), with G gates."""
    import torch

    def run(x: Tensor, *weights: Tensor) -> Tensor:
        start = x.new_zeros(1, x.shape[0], weights[1].shape[1])
        call: Any = torch.lstm if name == "lstm" else torch.gru
        states: Any = [start, start] if name == "lstm" else start
        found: Tensor = call(x, states, list(weights), True, 1, 0.0, False, False, True)[0]
        return found

    def shaped(x: Tensor, into: Tensor, recurrent: Tensor, bias_into: Tensor, bias_recurrent: Tensor) -> Tensor:
        del into, bias_into, bias_recurrent
        return x.new_empty(x.shape[0], x.shape[1], recurrent.shape[1])

    operation: Any = torch.library.custom_op(f"xdpx::{name}", run, mutates_args=(), schema=SCHEMA)
    operation.register_fake(shaped)
    found: Callable[..., Tensor] = operation
    return found
