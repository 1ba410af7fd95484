"""MiniLM's losses against the formulas of its papers, in numpy, text by text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from xdpx.config.faults import ConfigError
from xdpx.losses import losses
from xdpx.losses.minilm import divergence, regrouped, relation
from xdpx.models import models
from xdpx.models.pytorch.modules.activations import Heads

Array = NDArray[Any]
LENGTHS = (4, 2)
MASK = torch.arange(4) < torch.tensor(LENGTHS)[:, None]
IDS = torch.tensor([[2, 5, 7, 3], [2, 3, 0, 0]])
BATCH = {"id": torch.arange(2), "net_input": {"input_ids": IDS, "attention_mask": MASK}}


def heads(count: int, width: int, seed: int) -> Heads:
    dice = np.random.default_rng(seed)
    return Heads(*(torch.from_numpy(dice.normal(size=(2, count, 4, width))) for _ in range(3)))


def softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def by_hand(teacher: tuple[Array, Array], student: tuple[Array, Array]) -> float:
    """1 / (A |x|) times the sum over heads and tokens of KL, for one text without padding, (A, T, D) each."""
    theirs, ours = (
        softmax(left @ right.swapaxes(1, 2) / np.sqrt(left.shape[-1])) for left, right in (teacher, student)
    )
    return float((theirs * np.log(theirs / ours)).sum() / theirs.shape[0] / theirs.shape[1])


def of_text(each: torch.Tensor, text: int) -> Array:
    return np.asarray(each[text, :, : LENGTHS[text]].double().numpy())


@pytest.mark.parametrize("text", [0, 1])
def test_the_divergence_is_that_of_the_paper_on_each_text_alone(text: int) -> None:
    theirs, ours = heads(2, 6, seed=1), heads(2, 3, seed=2)
    pairs = [((theirs.query, theirs.key), (ours.query, ours.key)), ((theirs.value,) * 2, (ours.value,) * 2)]
    for teacher, student in pairs:
        found = divergence(relation(*teacher, MASK), relation(*student, MASK), MASK)[text].item()
        wanted = by_hand(*(tuple(of_text(each, text) for each in side) for side in (teacher, student)))
        assert found == pytest.approx(wanted, rel=1e-5)


def test_relation_heads_are_cut_out_of_all_features_of_a_token_in_their_order() -> None:
    each = heads(2, 6, seed=1).query
    flat = each.transpose(1, 2).reshape(2, 4, 12)
    found = regrouped(each, 3)
    assert found.shape == (2, 3, 4, 4)
    assert torch.equal(found[:, 1], flat[:, :, 4:8])
    with pytest.raises(ConfigError, match="relation_heads: is 5, which does not divide a width of 12"):
        regrouped(each, 5)


def model(hidden: int, num_heads: int, layers: int) -> Any:
    torch.manual_seed(hidden)
    kind = models["minilm"]
    sizes = {"hidden_size": hidden, "num_attention_heads": num_heads, "num_hidden_layers": layers}
    more = {"intermediate_size": 8, "max_position_embeddings": 8, "vocab_size": 9, "initializer_range": 0.7}
    return kind(kind.Parameters(pretrained_model=None, **sizes, **more)).eval()


def loss(**keys: Any) -> Any:
    return losses["minilm"](losses["minilm"].Parameters(**keys))


def asked(chosen: Any, teacher: Any) -> dict[str, Any]:
    return {**BATCH, **chosen.ask(teacher, BATCH["net_input"])}


@pytest.mark.parametrize(
    ("keys", "names"),
    [({}, ["attention_loss", "value_loss"]), ({"relation_heads": 4}, ["query_loss", "key_loss", "value_loss"])],
)
def test_the_loss_is_the_sum_of_its_relations_and_none_to_oneself(keys: dict[str, Any], names: list[str]) -> None:
    teacher, student, chosen = model(16, 2, 3), model(8, 2, 1), loss(**keys)
    found, count, facts = chosen(student, asked(chosen, teacher))
    assert count == 2
    assert list(facts) == names
    assert found.item() == pytest.approx(sum(value.item() for value in facts.values()))
    assert found.item() > 0
    assert chosen(teacher, asked(chosen, teacher))[0].item() == pytest.approx(0.0, abs=1e-6)
    gathered = {"loss_sum": found.item(), "count": 2.0, **{name: value.item() for name, value in facts.items()}}
    assert chosen.metrics(gathered)["loss"] == pytest.approx(found.item() / 2)


def test_every_layer_of_the_teacher_may_be_imitated_and_no_other() -> None:
    teacher = model(16, 2, 3)
    third, last = (loss(distilled_layer=layer).ask(teacher, BATCH["net_input"])["teacher_heads"] for layer in (2, -1))
    assert torch.equal(third.query, last.query)
    with pytest.raises(ConfigError, match="distilled_layer: is 3, but the teacher has 3 layers. Use a number from -3"):
        loss(distilled_layer=3).ask(teacher, BATCH["net_input"])


def test_other_numbers_of_heads_need_relation_heads() -> None:
    teacher, student, chosen = model(16, 4, 1), model(8, 2, 1), loss()
    with pytest.raises(ConfigError, match="the student has 2 attention heads, the teacher 4. Set relation_heads"):
        chosen(student, asked(chosen, teacher))
    chosen = loss(relation_heads=2)
    assert chosen(student, asked(chosen, teacher))[0].item() > 0


def test_what_stands_above_the_last_attention_is_not_trained() -> None:
    fixed = {name for name, weight in model(8, 2, 2).named_parameters() if not weight.requires_grad}
    assert fixed == {
        f"bert.encoder.layer.1.{part}.{kind}"
        for part in ("attention.output.dense", "attention.output.LayerNorm", "intermediate.dense", "output.dense",
                     "output.LayerNorm")
        for kind in ("weight", "bias")
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["bert", "modernbert"])
def test_what_makes_queries_keys_and_values_is_trained_and_what_stands_above_them_is_not(kind: str) -> None:
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 8}
    known = models["minilm"].Parameters(
        pretrained_model=None, model_type=kind, max_position_embeddings=8, vocab_size=9, **sizes
    )
    student = models["minilm"](known).train()
    chosen = loss()
    chosen(student, asked(chosen, student))[0].backward()
    untrained = {name for name, weight in student.named_parameters() if not weight.requires_grad}
    unreached = {name for name, weight in student.named_parameters() if weight.grad is None}
    assert untrained
    assert unreached - untrained <= {"bert.final_norm.weight"}
    assert unreached >= untrained
