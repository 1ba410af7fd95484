from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from xdpx.losses.causal_lm import CausalLM


class Even(torch.nn.Module):
    """Finds all of four tokens equally likely, the third a little more."""

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return torch.tensor([0.0, 0.0, 1e-6, 0.0]).expand(*input_ids.shape, 4)


def test_only_positions_with_a_target_count() -> None:
    loss = CausalLM(CausalLM.Parameters())
    batch: dict[str, Any] = {
        "net_input": {"input_ids": torch.zeros(2, 3, dtype=torch.long)},
        "target": torch.tensor([[2, 1, -100], [2, -100, -100]]),
    }
    total, count, facts = loss(Even(), batch)
    assert float(total) == pytest.approx(3 * math.log(4), rel=1e-5)
    assert (int(count), int(facts["correct"])) == (3, 2)
    found = loss.metrics({name: float(value) for name, value in loss.predictions(Even(), batch).items()})
    assert found == pytest.approx({"loss": 2.0, "acc": 2 / 3, "ppl": 4.0}, rel=1e-5)
    assert set(found) == set(CausalLM.metric_names)
