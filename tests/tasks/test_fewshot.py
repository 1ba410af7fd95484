"""Any network under prototypical networks: rows get the class whose known rows are nearest."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from xdpx.config.faults import ConfigError
from xdpx.losses import losses
from xdpx.tasks import tasks


class Given(nn.Module):
    def forward(self, vectors: Tensor) -> Tensor:
        return vectors


def batch(*vectors: list[float], **more: Any) -> dict[str, Any]:
    return {"net_input": {"vectors": torch.tensor(vectors)}, **more}


def support() -> Any:
    """Classes 4 and 1, in two batches."""
    yield batch([0.0, 1.0], [4.0, 4.0], target=torch.tensor([4, 1]))
    yield batch([0.0, 3.0], target=torch.tensor([4]))


def make(loss: str = "fewshot", **keys: Any) -> Any:
    kind, chosen = tasks["fewshot"], losses[loss]
    shape = {"n_way": 2, "k_shot": 1, "q_query": 1} if loss == "fewshot" else {}
    known = kind.Parameters(model="bow", loss=loss, **keys)
    return kind(known, Given(), chosen(chosen.Parameters(**shape)), read_support=support)


def test_a_row_gets_the_class_whose_mean_is_nearest() -> None:
    task = make(support_subset="shots")
    found = task.valid_step(batch([0.0, 2.5], [3.0, 4.0]))
    assert found["pred"].tolist() == [4, 1]
    near = torch.tensor([[-0.25, -(16 + 2.25)], [-(9 + 4.0), -1.0]]).softmax(dim=1)
    assert torch.allclose(found["prob"][:, [4, 1]], near)
    assert found["prob"].sum(dim=1).tolist() == pytest.approx([1.0, 1.0])
    labels = ["a", "b", "c", "d", "e"]
    rows = task.rows({name: value.numpy() for name, value in found.items()}, labels)
    assert [row[0] for row in rows] == ["e", "b"]
    assert task.header() == ["pred", "prob", "target_prob"]


def test_without_known_rows_vectors_are_given() -> None:
    task = make()
    assert task.valid_step(batch([0.0, 2.5]))["vector"].tolist() == [[0.0, 2.5]]
    assert task.header() == ["vector"]


def test_drawn_batches_are_scored_as_episodes() -> None:
    found = make(support_subset="shots").valid_step(batch([0.0], [9.0], [8.0], [1.0], drawn=True))
    assert found["right"].tolist() == [False, False]


def test_another_loss_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"loss: is 'cross_entropy', which does not use episodes. Use loss: fewshot"):
        make("cross_entropy")
