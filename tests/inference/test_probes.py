import torch
from torch import nn

from xdpx.inference.probes import remembered


class Counting(nn.Module):
    """Counts its calls, in Python and in a buffer, and computes with a cache; `rate` says how much a count changes."""

    def __init__(self, rate, buffered):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("steps", torch.zeros(()))
        self.rate, self.buffered, self.calls, self.cached = rate, buffered, 0, None

    def forward(self, rows):
        self.cached = self.layer.weight.sum() if self.cached is None else self.cached
        if self.buffered:
            self.steps += 1
        else:
            self.calls += 1
        return (self.layer(rows) + self.cached) * (1 + self.rate * (self.calls + self.steps))


def test_what_a_network_counts_from_call_to_call_is_named_if_its_outputs_depend_on_it():
    expected = {(0.0, False): None, (0.0, True): None, (1e-6, False): "calls", (1e-6, True): "steps"}
    for how, name in expected.items():
        assert remembered(Counting(*how), [torch.ones(3, 2)]) == name
