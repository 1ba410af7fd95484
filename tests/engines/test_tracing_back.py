"""Planted NaN and infinity: the module that made them is named, forward and backward."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from xdpx.engines.origin import NonFiniteOrigin, ids_of, with_ids
from xdpx.engines.pytorch.tracing_back import origin_of

BATCH = {"ids": torch.arange(20).reshape(4, 5) % 10, "target": torch.tensor([0, 1, 0, 1]), "id": [7, 8, 9, 10]}


class Block(nn.Module):
    """A layer that can be told to fail."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.inner, self.norm, self.fault = nn.Linear(8, 8), nn.LayerNorm(8), fault

    def forward(self, hidden: Tensor) -> Tensor:
        found = self.inner(hidden)
        if self.fault == "forward":
            found = found / (found - found)
        if self.fault == "row":
            found = found + torch.where(torch.arange(len(found)) == 2, torch.nan, 0.0)[:, None, None]
        if self.fault == "backward":
            found = found + torch.sqrt((found * 0).sum(-1, keepdim=True))
        return hidden + self.norm(found)


class Net(nn.Module):
    """Four layers, one of them with a fault."""

    def __init__(self, fault: str = "", layer: int = 0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.top, self.dropout = nn.Embedding(10, 8), nn.Linear(8, 2), nn.Dropout(0.1)
        self.layers = nn.ModuleList([Block(fault if index == layer else "") for index in range(4)])

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.dropout(self.table(ids))
        for layer in self.layers:
            hidden = layer(hidden)
        return self.top(hidden.mean(1))


def found_in(model: nn.Module, *, loss: str = "", batch: Any = BATCH) -> NonFiniteOrigin | None:
    def take_again(batch: Any, last: bool) -> Generator[Tensor]:
        logits = model(batch["ids"])
        value = nn.functional.cross_entropy(logits, batch["target"], reduction="sum")
        if loss == "log of 0":
            value = value + (logits.softmax(-1) * 0).log().sum()
        if loss == "steep":
            value = value + torch.sqrt((logits * 0).abs().sum())
        value.backward()
        yield value.detach()

    return origin_of(model, [batch], take_again)


def test_a_healthy_update_has_no_origin_and_leaves_nothing_behind() -> None:
    model = Net()
    before = torch.get_rng_state()
    assert found_in(model) is None
    assert torch.equal(before, torch.get_rng_state())
    assert all(weight.grad is None for weight in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("layer", [0, 2, 3])
@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_the_layer_that_makes_it_is_named(phase: str, layer: int) -> None:
    origin = found_in(Net(phase, layer))
    assert origin is not None
    assert (origin.phase, origin.name, origin.kind) == (phase, f"layers.{layer}", "Block")
    assert "what to do" in origin.lines()[-1]


def test_code_between_two_parts_is_told_apart_from_the_parts() -> None:
    origin = found_in(Net("forward", 1))
    assert origin is not None
    assert origin.notes[0] == (
        "in its own code, after 'layers.1.inner', before it calls 'layers.1.norm', whose input has it"
    )


def test_rows_and_sample_ids_are_named() -> None:
    origin = found_in(Net("row", 1))
    assert origin is not None
    assert origin.rows == (2,)
    assert with_ids(origin, ids_of(BATCH)).ids == [9]
    assert "sample ids 9" in with_ids(origin, ids_of(BATCH)).lines()


def test_a_broken_weight_the_batch_and_the_loss_are_told_apart() -> None:
    model = Net()
    with torch.no_grad():
        model.layers[1].inner.weight[0, 0] = float("inf")
    weight, loss, steep = found_in(model), found_in(Net(), loss="log of 0"), found_in(Net(), loss="steep")
    batch = found_in(Net(), batch={**BATCH, "features": torch.full((4, 2), float("nan"))})
    assert weight is not None
    assert (weight.phase, weight.name) == ("weights", "layers.1.inner.weight")
    assert loss is not None
    assert loss.phase == "loss"
    assert batch is not None
    assert (batch.phase, batch.name) == ("batch", "features")
    assert steep is not None
    assert steep.phase == "backward"
    assert "something between it and the loss made it so" in steep.notes[0]


def test_gradients_that_are_finite_and_cannot_be_added_up_are_named() -> None:
    class Steep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, ids: Tensor) -> Tensor:
            return (self.weight * 1e20).sum().expand(len(ids), 2)

    model = Steep()
    origin = origin_of(model, [BATCH], lambda batch, last: _backward(model(batch["ids"]).mean()))
    assert origin is not None
    assert (origin.phase, origin.name) == ("sum", "weight")


def _backward(loss: Tensor) -> list[Tensor]:
    loss.backward()
    return [loss.detach()]


def test_an_attention_mask_is_no_fault_and_a_row_that_is_all_masked_is() -> None:
    class Attention(nn.Module):
        def forward(self, scores: Tensor) -> Tensor:
            return scores.softmax(-1)

    class Masked(Net):
        def __init__(self, masked: int) -> None:
            super().__init__()
            self.attention, self.masked = Attention(), masked

        def forward(self, ids: Tensor) -> Tensor:
            hidden = self.table(ids)
            mask = torch.zeros(4, 5, 5)
            mask[..., : self.masked] = -torch.inf
            return self.top((self.attention(hidden @ hidden.transpose(1, 2) + mask) @ hidden).mean(1))

    assert found_in(Masked(2)) is None
    origin = found_in(Masked(5))
    assert origin is not None
    assert origin.name == "attention"
    assert "everything is masked" in origin.lines()[-1]
