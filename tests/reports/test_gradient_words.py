"""Vanishing, exploding and dead gradients are named, and healthy ones are not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from xdpx.engines.pytorch.gradients import sizes_of
from xdpx.reports.gradient_words import Sizes, by_layer, layer_of, troubles
from xdpx.reports.gradients import draw_history


class Deep(nn.Module):
    """A stack of layers between an embedding and a classifier."""

    def __init__(self, *, depth: int = 8, activation: str = "gelu", residual: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.top = nn.Embedding(50, 16), nn.Linear(16, 3)
        self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(depth)])
        self.norms = nn.ModuleList([nn.LayerNorm(16) for _ in range(depth)])
        self.activation = {"gelu": torch.nn.functional.gelu, "sigmoid": torch.sigmoid, "relu": torch.relu}[activation]
        self.residual = residual

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.table(ids).mean(1)
        for layer, norm in zip(self.layers, self.norms, strict=True):
            found = self.activation(layer(norm(hidden) if self.residual else hidden))
            hidden = hidden + found if self.residual else found
        return self.top(hidden)


def history(model: nn.Module, looks: int = 10, rate: float = 0.05) -> list[Sizes]:
    optimizer, found = torch.optim.SGD(model.parameters(), lr=rate), []
    draw = torch.Generator().manual_seed(1)
    for _ in range(looks):
        ids = torch.randint(0, 50, (16, 6), generator=draw)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(ids), ids[:, 0] % 3).backward()
        found.append(sizes_of(model))
        optimizer.step()
    return found


def kinds(found: list[Sizes]) -> set[tuple[str, str]]:
    return {(trouble.kind, trouble.where) for trouble in troubles(found)}


@pytest.mark.parametrize("depth", [3, 8, 24])
@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_nothing_is_said_of_a_healthy_model(depth: int, activation: str) -> None:
    assert kinds(history(Deep(depth=depth, activation=activation))) == set()


def test_a_deep_stack_of_sigmoids_vanishes() -> None:
    found = troubles(history(Deep(depth=14, activation="sigmoid", residual=False)))
    assert [(trouble.kind, trouble.where) for trouble in found] == [("vanishing", "layers")]
    assert "those of 'layers.0' are 10^-" in found[0].words


def test_a_layer_that_explodes_is_named() -> None:
    model = Deep()
    model.layers[5].register_forward_pre_hook(lambda module, inputs: (inputs[0] * 1e6,))
    assert ("exploding", "layers.5") in kinds(history(model, rate=0.0))


def test_a_dead_layer_is_named() -> None:
    model = Deep(activation="relu")
    with torch.no_grad():
        model.layers[3].bias.fill_(-1e3)
    assert ("dead", "layers.3") in kinds(history(model))


def test_gradients_that_grow_out_of_bounds_are_named_and_one_odd_batch_is_not() -> None:
    model = Deep()
    before = history(model, looks=8)
    with torch.no_grad():
        model.top.weight.mul_(1e5)
    assert kinds([*before, *history(model, looks=1, rate=0.0)]) == set()
    assert ("growing", "model") in kinds([*before, *history(model, looks=3, rate=0.0)])


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("bert.encoder.layer.11.output.dense.weight", "bert.encoder.layer.11"),
        ("0.weight", "0"),
        ("lm/transformer/x_layers_3/ff/w", "lm/transformer/x_layers_3"),
        ("bert.embeddings.word_embeddings.weight", "bert.embeddings.word_embeddings"),
        ("scale", "scale"),
    ],
)
def test_weights_belong_to_layers(name: str, layer: str) -> None:
    assert layer_of(name) == layer


def test_the_history_is_drawn_by_layer(tmp_path: Path) -> None:
    found = history(Deep(depth=3))
    assert list(by_layer(found[0])) == [
        "table",
        "top",
        *(f"layers.{n}" for n in range(3)),
        *(f"norms.{n}" for n in range(3)),
    ]
    draw_history([(10 * (index + 1), sizes) for index, sizes in enumerate(found)], str(tmp_path / "history.png"))
    assert (tmp_path / "history.png").stat().st_size > 5000
