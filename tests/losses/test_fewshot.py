"""Prototypical networks, held to a closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from xdpx.config.faults import ConfigError
from xdpx.losses.fewshot import FewshotLoss

WAY, SHOTS, QUERIES, WIDTH = 3, 2, 4, 5
SIZE = WAY * (SHOTS + QUERIES)


class Given(nn.Module):
    """A network that knows the vectors already, and adds noise to them in training."""

    def __init__(self, noise: float = 0.0) -> None:
        super().__init__()
        self.noise = noise

    def forward(self, vectors: Tensor) -> Tensor:
        return vectors + self.noise * torch.randn_like(vectors)


def loss(**values: Any) -> FewshotLoss:
    return FewshotLoss(FewshotLoss.Parameters(n_way=WAY, k_shot=SHOTS, q_query=QUERIES, **values))


def batch(episodes: int = 2, **more: Any) -> dict[str, Any]:
    return {"net_input": {"vectors": torch.randn(episodes * SIZE, WIDTH)}, **more}


def by_hand(vectors: Tensor, *, cosine: bool = False) -> tuple[float, int]:
    """Return the loss sum and the right ones of equation 2, query by query."""
    total, right = 0.0, 0
    for episode in vectors.double().numpy().reshape(-1, SHOTS + QUERIES, WAY, WIDTH):
        prototypes = [episode[:SHOTS, number].mean(axis=0) for number in range(WAY)]
        for number in range(WAY):
            for query in episode[SHOTS:, number]:
                if cosine:
                    near = [query @ c / np.linalg.norm(query) / np.linalg.norm(c) / 0.05 for c in prototypes]
                else:
                    near = [-np.sum((query - c) ** 2) for c in prototypes]
                total += np.log(np.exp(near).sum()) - near[number]
                right += int(np.argmax(near) == number)
    return total, right


@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
def test_the_loss_is_that_of_the_paper(distance: str) -> None:
    given = batch()
    found, count, facts = loss(distance=distance)(Given(), given)
    expected, right = by_hand(given["net_input"]["vectors"], cosine=distance == "cosine")
    assert float(found) == pytest.approx(expected, rel=1e-4)
    assert (count, int(facts["correct"])) == (2 * WAY * QUERIES, right)


def test_with_r_drop_two_passes_must_agree() -> None:
    given = batch()
    plain = loss()(Given(), given)[0]
    same, _, facts = loss(use_r_dropout=True)(Given(), given)
    assert float(same) == pytest.approx(float(plain), rel=1e-5)
    assert float(facts["kl_loss"]) == pytest.approx(0.0, abs=1e-5)
    apart = loss(use_r_dropout=True)(Given(0.5), given)[2]
    assert float(apart["kl_loss"]) > 0.1
    assert loss().train_metrics({"loss_sum": 1.0, "count": 4, "correct": 3, **apart})["kl_loss"] > 0


def test_a_batch_of_parts_of_episodes_is_refused() -> None:
    given = {"net_input": {"vectors": torch.randn(SIZE + 1, WIDTH)}}
    with pytest.raises(ConfigError, match=r"a batch has 19 rows, but an episode has 18"):
        loss()(Given(), given)


def test_held_out_episodes_are_scored_with_an_interval() -> None:
    parts = [loss().predictions(Given(), batch(1, drawn=True)) for _ in range(6)]
    right = torch.cat([part["right"] for part in parts]).numpy()
    sums = {name: sum(float(part[name]) for part in parts) for name in ("loss_sum", "count")}
    found = loss().metrics({"right": right, **sums})
    each = right.reshape(6, -1).mean(axis=1)
    assert found["acc"] == pytest.approx(right.mean())
    assert found["acc_interval"] == pytest.approx(1.96 * each.std(ddof=1) / np.sqrt(6))
    assert found["loss"] == pytest.approx(sums["loss_sum"] / sums["count"])


def test_rows_that_are_no_episode_get_their_vectors() -> None:
    given = {"net_input": {"vectors": torch.tensor([[1.0, 0.25]])}}
    found = loss().predictions(Given(), given)
    rows = loss().rows({"vector": found["vector"].numpy()}, None)
    assert rows is not None
    assert list(rows) == [["[1.0, 0.25]"]]
