import numpy as np
import pytest
import torch
from torch import nn

from xdpx.inference.probes import difference, draws, of_neighbours, remembered
from xdpx.models.pytorch.positional import Positional


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


class Rows(nn.Module):
    """Computes rows by `how`; pads what it gives to the longest row, as recurrent networks do."""

    def __init__(self, how):
        super().__init__()
        self.how, self.norm = how, nn.BatchNorm1d(4)

    def forward(self, tokens, mask):
        longest = int(mask.sum(1).max())
        return self.how(self, tokens.float()), tokens[:, :longest].float()


def test_a_row_that_depends_on_its_neighbours_is_found():
    batches = [torch.tensor([[5, 3, 0, 0], [2, 7, 9, 1]]), torch.tensor([[4, 0, 0, 0]])]
    batches = [[tokens, tokens > 0] for tokens in batches]
    batch_norm = nn.functional.batch_norm
    for how in (lambda net, x: x.cumsum(1), lambda net, x: net.norm(x)):
        assert of_neighbours(Rows(how).eval(), batches) < 1e-6
    for how in (lambda net, x: x - x.mean(0), lambda net, x: batch_norm(x, None, None, training=True)):
        assert of_neighbours(Rows(how).eval(), batches) > 0.1
    masked = [[tokens, (tokens > 0).flatten().nonzero()] for tokens, _ in batches]
    assert of_neighbours(Rows(lambda net, x: x - x.mean(0)).eval(), masked) == 0


def test_a_network_that_draws_random_numbers_when_it_is_evaluated_is_found():
    rows = [torch.ones(3, 4)]
    assert not draws(nn.Dropout(0.5).eval(), rows)
    assert draws(nn.Dropout(0.5), rows)


def test_what_a_network_returns_in_bfloat16_is_exported_in_float32():
    found = Positional(nn.Linear(4, 2).bfloat16(), ["input"])(torch.ones(3, 4).bfloat16())
    assert found.dtype == torch.float32


@pytest.mark.filterwarnings("error")
def test_scores_that_are_infinite_on_both_sides_do_not_differ():
    wanted = np.array([-np.inf, 1.0], np.float32)
    assert difference(np.array([-np.inf, 1.5]), wanted) == 0.25
    assert difference(np.array([0.0, 1.0]), wanted) == np.inf
