"""The chain of tags against all chains there are, and the tagger as a whole."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from xdpx.losses import losses
from xdpx.models import models
from xdpx.models.pytorch.modules.tagging import best_chain, chain_scores, log_partition

LENGTHS = [4, 2, 1]
TAGS = 3


@pytest.fixture
def drawn() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(3)
    mask = torch.arange(4) < torch.tensor(LENGTHS)[:, None]
    return torch.randn(3, 4, TAGS, dtype=torch.double), torch.randn(TAGS + 1, TAGS + 1, dtype=torch.double), mask


def score(emissions: Tensor, neighbours: Tensor, chain: tuple[int, ...]) -> Tensor:
    path = [TAGS, *chain, TAGS]
    own = sum(emissions[word, tag] for word, tag in enumerate(chain))
    return own + sum(neighbours[left, right] for left, right in zip(path, path[1:], strict=False))


def all_chains(length: int) -> list[tuple[int, ...]]:
    return list(product(range(TAGS), repeat=length))


def test_the_partition_is_the_sum_over_all_chains(drawn: tuple[Tensor, Tensor, Tensor]) -> None:
    emissions, neighbours, mask = drawn
    found = log_partition(emissions, neighbours, mask)
    for row, length in enumerate(LENGTHS):
        every = torch.stack([score(emissions[row], neighbours, chain) for chain in all_chains(length)])
        assert torch.allclose(found[row], every.logsumexp(0))


def test_the_score_of_a_chain_is_that_of_its_words_and_neighbours(drawn: tuple[Tensor, Tensor, Tensor]) -> None:
    emissions, neighbours, mask = drawn
    tags = torch.tensor([[2, 0, 1, 1], [1, 2, -100, -100], [0, -100, -100, -100]])
    found = chain_scores(emissions, neighbours, tags, mask)
    for row, length in enumerate(LENGTHS):
        assert torch.allclose(found[row], score(emissions[row], neighbours, tuple(tags[row, :length].tolist())))


def test_the_best_chain_is_the_best_of_all(drawn: tuple[Tensor, Tensor, Tensor]) -> None:
    emissions, neighbours, mask = drawn
    found = best_chain(emissions, neighbours, mask)
    for row, length in enumerate(LENGTHS):
        best = max(all_chains(length), key=lambda chain: float(score(emissions[row], neighbours, chain)))
        assert tuple(found[row, :length].tolist()) == best
    assert not found[~mask].any()


def tagger(**keys: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8}
    kind = models["bert_token"]
    return kind(kind.Parameters(pretrained_model=None, vocab_size=20, num_classes=3, **sizes, **keys)).eval()


def tagging(**keys: Any) -> Any:
    return losses["tagging"](losses["tagging"].Parameters(max_len=6, tags=["o", "b-per", "i-per"], **keys))


@pytest.fixture
def batch() -> dict[str, Any]:
    ids = torch.tensor([[2, 5, 6, 7, 3], [2, 8, 3, 0, 0]])
    words = {"word_starts": torch.tensor([[1, 3], [1, 0]]), "word_mask": torch.tensor([[True, True], [True, False]])}
    given = {"input_ids": ids, "attention_mask": ids != 0, **words}
    return {"net_input": given, "target": torch.tensor([[1, 2], [0, -100]])}


def test_a_crf_that_knows_nothing_of_neighbours_is_no_crf(batch: dict[str, Any]) -> None:
    plain, chained = tagger(), tagger(use_crf=True)
    chained.load_state_dict({**chained.state_dict(), **plain.state_dict()})
    left, right = tagging().predictions(plain, batch), tagging().predictions(chained, batch)
    assert torch.equal(left["pred"], right["pred"])
    assert torch.allclose(left["loss_sum"], right["loss_sum"], atol=1e-5)
    assert right["count"] == 3


def test_neighbours_learn_faster_and_do_not_decay() -> None:
    groups = {group["name"]: group for group in tagger(use_crf=True).parameter_groups(0.01)}
    group = next(group for name, group in groups.items() if name.startswith("neighbours"))
    assert (group["lr"], group["weight_decay"]) == (1.0, 0.0)


def test_rows_of_all_batches_are_equally_wide_and_scored_by_entities(batch: dict[str, Any]) -> None:
    loss = tagging()
    found = {name: value.detach().numpy() for name, value in loss.predictions(tagger(), batch).items()}
    assert found["target"].tolist() == [[1, 2, -1, -1, -1, -1], [0, -1, -1, -1, -1, -1]]
    right = loss.metrics({**found, "pred": found["target"]})
    assert (right["acc"], right["f1"]) == (1.0, 1.0)
    wrong = found["target"].copy()
    wrong[0, 1] = 0  # the entity ends too early: neither found nor rightly predicted
    assert loss.metrics({**found, "pred": wrong})["f1"] == 0.0
    assert list(loss.rows({"pred": wrong}, None)) == [["b-per o"], ["o"]]
