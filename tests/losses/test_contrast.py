"""Vectors that find each other within a batch, or the prototype of what is like them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from xdpx.config.faults import ConfigError
from xdpx.losses import losses
from xdpx.losses.contrast import contrast, density_of, means_of_classes, text_numbers, unmasked_texts


class Fixed(nn.Module):
    def forward(self, vectors):
        return vectors


def loss(**keys):
    kind = losses["simcse"]
    return kind(kind.Parameters(**keys))


def test_the_loss_is_that_of_the_paper():
    torch.manual_seed(0)
    vectors = torch.randn(4, 3, 5)
    loss_sum, count, _ = loss(temperature=0.1)(Fixed(), {"net_input": {"vectors": vectors}})
    unit = vectors / vectors.norm(dim=-1, keepdim=True)
    expected = 0.0
    for row in range(4):
        far = [math.exp(float(unit[row, 0] @ unit[other, view]) / 0.1) for other in range(4) for view in (1, 2)]
        expected -= math.log(math.exp(float(unit[row, 0] @ unit[row, 1]) / 0.1) / sum(far))
    assert count == 4
    assert float(loss_sum) == pytest.approx(expected, rel=1e-4)


def test_held_out_pairs_are_compared_with_their_labels():
    first, second = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    vectors = torch.stack(
        [torch.stack([first, first]), torch.stack([first, first + second]), torch.stack([first, second])]
    )
    rows = {"net_input": {"vectors": vectors}, "target": torch.tensor([2, 1, 0])}
    found = {name: value.numpy() for name, value in loss().predictions(Fixed(), rows).items()}
    assert loss(metrics=["spearman"]).scores(found)["spearman"] == pytest.approx(1.0)
    assert loss().metrics(found).keys() == {"loss", "acc"}


def test_cosines_are_correlated_with_the_numbers_that_labels_are_not_with_those_of_their_classes():
    rows = {"net_input": {"vectors": torch.randn(4, 2, 3)}, "target": torch.tensor([2, 1, 0, 2])}
    found = loss(label_values=[0.0, 0.5, 5.0]).predictions(Fixed(), rows)
    assert found["target"].tolist() == [5.0, 0.5, 0.0, 5.0]


def test_labels_out_of_order_are_refused_where_a_metric_compares_them():
    loss(major_metric="acc").refuse_labels(["5.0", "0.5"])
    with pytest.raises(ConfigError, match="'5.0' counts as 0, '0.5' counts as 1"):
        loss(major_metric="spearman").refuse_labels(["5.0", "0.5"])


def test_what_is_compared_has_no_length():
    logits, right = contrast(torch.tensor([[3.0, 0.0]]), torch.tensor([[0.5, 0.0], [0.0, 9.0]]), temperature=0.5)
    assert logits.tolist() == [[2.0, 0.0]]
    assert right.tolist() == [0]


def test_masked_words_and_contrast_add_up():
    class Twice(nn.Module):
        def forward(self, input_ids, masked_positions):
            return torch.zeros(3, 8), torch.eye(2)

    kind = losses["bert_pretrain_cl"]
    given = {"input_ids": torch.zeros(2, 5), "masked_positions": torch.tensor([1, 2, 6])}
    rows = {"net_input": given, "target": torch.tensor([1, 0, 7])}
    one = kind(kind.Parameters(temperature=1.0, lm_weight=0.5))
    loss_sum, count, facts = one(Twice(), rows)
    assert count == 2
    assert float(loss_sum) == pytest.approx(2 * math.log(1 + math.exp(-1)) + 0.5 * 2 * math.log(8), rel=1e-5)
    sums = {name: value.numpy() for name, value in one.predictions(Twice(), rows).items()}
    assert one.metrics(sums).keys() == kind.metric_names.keys()
    assert {"cl_correct", "lm_count"} <= facts.keys()


class Given(nn.Module):
    def forward(self, views: Tensor) -> Tensor:
        return views


def loss_of(**keys: Any) -> Any:
    kind = losses["bert_cl"]
    return kind(kind.Parameters(temperature=0.5, lambda_proto_loss=2.0, **keys))


VIEWS = torch.tensor([[[1.0, 0.0], [1.0, 0.1]], [[0.0, 1.0], [0.1, 1.0]]])
BATCH = {"net_input": {"views": VIEWS}, "target": torch.tensor([1, 0])}
CENTRES, DENSITY = torch.eye(2), torch.tensor([0.5, 0.25])


def test_without_prototypes_the_loss_is_that_of_simcse() -> None:
    plain = losses["simcse"]
    ours, theirs = (one(Given(), BATCH) for one in (loss_of(), plain(plain.Parameters(temperature=0.5))))
    assert ours[0] == theirs[0]


@pytest.mark.parametrize(
    ("supervised", "wanted"),
    [
        (False, math.log1p(math.exp(-1 / 0.5)) + math.log1p(math.exp(-1 / 0.25))),
        (True, math.log1p(math.exp(1 / 0.5)) + math.log1p(math.exp(1 / 0.25))),
    ],
)
def test_the_prototypes_add_a_cross_entropy_over_densities(supervised: bool, wanted: float) -> None:
    loss = loss_of(supervised=supervised)
    plain = loss(Given(), BATCH)[0]
    loss.prototypes = [(CENTRES, DENSITY)]
    found, count, facts = loss(Given(), BATCH)
    assert (found - plain).item() == pytest.approx(2.0 * wanted, rel=1e-5)
    shown = loss.train_metrics(
        {"loss_sum": 1.0, "count": count, "correct": 2, "proto_loss": float(facts["proto_loss"])}
    )
    assert shown["proto_loss"] == pytest.approx(wanted / 2)


def test_only_so_many_other_prototypes_are_compared_with() -> None:
    loss = loss_of(negative_proto_size=2)
    loss.prototypes = [(torch.eye(6)[:, :2], torch.full((6,), 0.5))]
    torch.manual_seed(0)
    wanted = 2 * math.log(math.exp(1 / 0.5) + 2) - 2 / 0.5  # the others stand at right angles, but for one
    assert loss.contrast(VIEWS[:, 0], torch.tensor([0, 1])).item() == pytest.approx(wanted, rel=1e-4)


def test_prototypes_come_back_when_training_goes_on() -> None:
    loss, again = loss_of(), loss_of()
    loss.prototypes = [(CENTRES, DENSITY)]
    again.load_state_dict(loss.state_dict())
    assert torch.equal(loss.contrast(VIEWS[:, 0], None), again.contrast(VIEWS[:, 0], None))


def test_densities_are_equation_12_with_the_temperature_as_their_mean() -> None:
    rows, centres = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0], [0.0, 1.0]]), torch.eye(2)
    cluster = torch.tensor([0, 0, 1, 1])
    away = (0.2**2 + 0.6**2) ** 0.5
    raw = torch.tensor([away / (2 * math.log(12)), 0.0])
    wanted = (raw / raw.mean() * 0.3).clamp(min=0.03)
    torch.testing.assert_close(density_of(rows, centres, cluster, temperature=0.3), wanted)
    torch.testing.assert_close(means_of_classes(rows, cluster, 2)[1], torch.tensor([0.0, 1.0]))


def test_copies_of_the_right_text_are_no_negatives_however_padded() -> None:
    ids = torch.tensor([[4, 5, 9, 9], [6, 7, 0, 0], [4, 5, 0, 0], [4, 0, 0, 0]])
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0], [1, 0, 0, 0]])
    vectors = torch.eye(3)[[0, 1, 0, 2]][:, None].expand(-1, 2, -1)
    given = {"views": vectors, "passage_ids": ids, "passage_mask": mask}
    loss = losses["bert_dpr"](losses["bert_dpr"].Parameters(temperature=1.0))
    model = lambda views, **_: views  # noqa: E731
    sums = loss.predictions(model, {"net_input": given})
    scores = loss.metrics({name: value.numpy() for name, value in sums.items()})
    assert (scores["acc"], scores["in_batch_mrr"]) == (1.0, 1.0)
    others = [2, 3, 2, 3]  # negatives of each question
    assert scores["loss"] == pytest.approx(sum(math.log1p(n / math.e) for n in others) / 4)
    assert float(loss(model, {"net_input": given})[0]) == pytest.approx(4 * scores["loss"])


def test_a_hard_negative_that_is_the_right_text_of_a_row_is_no_negative_for_it() -> None:
    ids = torch.tensor([[[1, 2], [3, 4], [7, 8]], [[5, 6], [7, 8], [9, 9]]])
    vectors = torch.randn(2, 3, 4)
    plain = loss(temperature=1.0)
    logits, _ = plain._choices(vectors, {"net_input": {"input_ids": ids}})
    assert (logits == -math.inf).tolist() == [[False] * 4, [False, False, True, False]]
    free, _ = plain._choices(vectors, {"net_input": {}})
    assert torch.equal(logits[0], free[0])


def test_copies_are_told_by_the_tokens_before_they_were_masked() -> None:
    batch = {
        "net_input": {
            "input_ids": torch.tensor([[1, 4, 5], [1, 3, 5], [1, 4, 3]]),
            "masked_positions": torch.tensor([4, 8]),
        },
        "target": torch.tensor([4, 6]),
    }
    numbers = unmasked_texts(batch)
    assert numbers[0] == numbers[1] != numbers[2]


def test_different_texts_have_different_numbers() -> None:
    ids = torch.cartesian_prod(*[torch.arange(12)] * 4)
    assert len(text_numbers(ids, None).unique()) == 12**4
    long = torch.randint(0, 30000, (512,)).repeat(513, 1)
    long[torch.arange(512), torch.arange(512)] += 1
    assert len(text_numbers(long, None).unique()) == 513


def test_questions_that_tell_no_passage_from_another_have_the_lowest_reciprocal_rank() -> None:
    found = losses["bert_dpr"](losses["bert_dpr"].Parameters())
    sums = found.predictions(lambda views: views, {"net_input": {"views": torch.ones(4, 2, 8)}})  # type: ignore[arg-type, return-value]
    assert found.metrics({name: value.numpy() for name, value in sums.items()})["in_batch_mrr"] == 1 / 4


def test_views_of_a_text_that_dropout_does_not_tell_apart_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    views = torch.randn(3, 1, 5).expand(-1, 2, -1)
    loss().predictions(Fixed(), {"net_input": {"vectors": torch.randn(3, 2, 5)}})
    loss()(Fixed(), {"net_input": {"vectors": torch.randn(3, 2, 5)}})
    assert "two passes" not in caplog.text
    loss()(Fixed(), {"net_input": {"vectors": views}})
    assert "two passes over the first batch" in caplog.text


def test_labels_that_only_score_do_not_say_which_texts_are_alike() -> None:
    alike = {name: losses[name](losses[name].Parameters()).takes_texts_for_alike for name in ("simcse", "bert_dpr")}
    assert alike == {"simcse": True, "bert_dpr": True}
    kind = losses["bert_cl"]
    assert [kind(kind.Parameters(supervised=by)).takes_texts_for_alike for by in (False, True)] == [True, False]
    assert not losses["circle_siamese"](losses["circle_siamese"].Parameters()).takes_texts_for_alike
