"""TinyBERT's losses against the formulas of its paper, in numpy, text by text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from xdpx.config.faults import ConfigError
from xdpx.losses import losses
from xdpx.losses.tinybert import score_gap, soft_cross_entropy, state_gap, uniform_map
from xdpx.models import models
from xdpx.models.pytorch.modules.activations import Heads, capture_activations

Array = NDArray[Any]
LENGTHS = (4, 2)
MASK = torch.arange(4) < torch.tensor(LENGTHS)[:, None]
IDS = torch.tensor([[2, 5, 7, 3], [2, 3, 0, 0]])
NET_INPUT = {"input_ids": IDS, "attention_mask": MASK}
BATCH = {"id": torch.arange(2), "net_input": NET_INPUT, "target": torch.tensor([1, 2])}


def numbers(*shape: int, seed: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


@pytest.mark.parametrize("text", [0, 1])
def test_gaps_are_mean_squares_over_each_text_alone(text: int) -> None:
    ours, theirs = (Heads(*(numbers(2, 3, 4, 5 + seed, seed=7 * seed + n) for n in range(3))) for seed in (0, 1))
    size, scores = LENGTHS[text], []
    for heads in (ours, theirs):
        query, key = (each[text, :, :size].numpy() for each in heads[:2])
        scores.append(query @ key.swapaxes(1, 2) / np.sqrt(query.shape[-1]))
    wanted = np.mean((scores[0] - scores[1]) ** 2)
    assert score_gap(ours, theirs, MASK)[text].item() == pytest.approx(wanted, rel=1e-5)
    states = [numbers(2, 4, 6, seed=seed) for seed in (3, 4)]
    wanted = np.mean((states[0][text, :size].numpy() - states[1][text, :size].numpy()) ** 2)
    assert state_gap(*states, MASK)[text].item() == pytest.approx(wanted, rel=1e-5)


def test_predictions_are_compared_by_cross_entropy_of_softened_probabilities() -> None:
    ours, theirs = np.array([0.5, -1.0, 2.0]), np.array([1.0, 0.0, -0.5])
    teacher, student = (np.exp(each / 3) / np.exp(each / 3).sum() for each in (theirs, ours))
    found = soft_cross_entropy(torch.from_numpy(ours), torch.from_numpy(theirs), heat=3.0)
    assert found.item() == pytest.approx(-(teacher * np.log(student)).sum(), rel=1e-5)


def test_layers_are_imitated_at_even_distances_and_the_last_by_the_last() -> None:
    assert uniform_map(4, 12) == [3, 6, 9, 12]
    assert uniform_map(3, 4) == [1, 2, 4]
    assert uniform_map(2, 2) == [1, 2]


def model(name: str, hidden: int, layers: int, **keys: Any) -> Any:
    torch.manual_seed(hidden)
    kind = models[name]
    sizes = {"hidden_size": hidden, "num_attention_heads": 2, "num_hidden_layers": layers, **keys}
    more = {"intermediate_size": 8, "max_position_embeddings": 8, "vocab_size": 9, "initializer_range": 0.7}
    return kind(kind.Parameters(pretrained_model=None, **sizes, **more)).eval()


def parts(name: str, student: Any, teacher: Any, batch: dict[str, Any] = BATCH, **keys: Any) -> dict[str, float]:
    chosen = losses[name](losses[name].Parameters(**keys))
    found, count, facts = chosen(student, {**batch, **chosen.ask(teacher, batch["net_input"])})
    assert count == 2
    shown = {key: value.item() for key, value in facts.items() if key.endswith("_loss")}
    assert found.item() == pytest.approx(sum(shown.values()), rel=1e-5)
    return shown


def test_general_distillation_is_the_sum_of_the_formulas_over_all_layers() -> None:
    student = model("tinybert_encoder_only_distill", 8, 2, fit_size=16)
    teacher = model("minilm", 16, 4)
    ours, theirs = capture_activations(student, NET_INPUT), capture_activations(teacher, NET_INPUT)
    with torch.no_grad():
        hidden = [state @ student.fit.hidden.weight.T + student.fit.hidden.bias for state in ours.hidden[1:]]
        embedding = ours.hidden[0] @ student.fit.embedding.weight.T + student.fit.embedding.bias
    wanted = {
        "attention_loss": sum(score_gap(ours.heads[m], theirs.heads[2 * m + 1], MASK).sum() for m in (0, 1)),
        "embedding_loss": state_gap(embedding, theirs.hidden[0], MASK).sum(),
        "hidden_loss": sum(state_gap(hidden[m], theirs.hidden[2 * m + 2], MASK).sum() for m in (0, 1)),
    }
    assert parts("tinybert", student, teacher) == {
        name: pytest.approx(value.item(), rel=1e-4) for name, value in wanted.items()
    }
    assert parts("tinybert", teacher, teacher) == dict.fromkeys(wanted, pytest.approx(0.0, abs=1e-9))


def test_heads_of_pre_training_are_imitated_where_that_is_wanted() -> None:
    student, teacher = model("tinybert_for_gd", 8, 2, num_classes=3), model("bert_pretrain", 16, 2, num_classes=3)
    batch = {**BATCH, "net_input": {**NET_INPUT, "masked_positions": torch.tensor([1, 2, 5])}}
    off = {"attention_distill": False, "hidden_distill": False}
    found = parts(
        "tinybert", student, teacher, batch, **off, mlm_predict_distill=True, nsp_predict_distill=True, lm_weight=0.5
    )
    (tokens, classes), (their_tokens, their_classes) = (each(**batch["net_input"]) for each in (student, teacher))
    of_tokens = soft_cross_entropy(tokens, their_tokens)
    assert found["lm_loss"] == pytest.approx(0.5 * (of_tokens[:2].mean() + of_tokens[2]).item(), rel=1e-5)
    assert found["cls_loss"] == pytest.approx(soft_cross_entropy(classes, their_classes).sum().item(), rel=1e-5)
    with pytest.raises(ConfigError, match="nsp_predict_distill: is true, but student or teacher has no such"):
        parts("tinybert", model("minilm", 16, 2), model("minilm", 8, 2), **off, nsp_predict_distill=True)


def test_a_task_is_distilled_in_two_stages_or_at_once() -> None:
    student = model("tinybert_for_td", 8, 2, fit_size=16, num_classes=3)
    teacher = model("bert_classification", 16, 2, num_classes=3)
    layers = parts("tinybert_td", student, teacher, cls_predict_distill=False)
    last = parts("tinybert_td", student, teacher, attention_distill=False, hidden_distill=False)
    assert parts("tinybert_td", student, teacher) == pytest.approx({**layers, **last})
    wanted = soft_cross_entropy(student(**NET_INPUT), teacher(**NET_INPUT)).sum()
    assert last == {"cls_loss": pytest.approx(wanted.item(), rel=1e-4)}


def test_padding_changes_nothing() -> None:
    student, teacher = model("tinybert_encoder_only_distill", 8, 2, fit_size=16), model("minilm", 16, 4)
    wider = {name: torch.nn.functional.pad(value, (0, 3)) for name, value in NET_INPUT.items()}
    for name in ("tinybert", "minilm"):
        narrow = parts(name, student, teacher)
        assert parts(name, student, teacher, {**BATCH, "net_input": wider}) == pytest.approx(narrow, rel=1e-4)


def test_a_student_that_is_deeper_than_its_teacher_is_refused() -> None:
    with pytest.raises(ConfigError, match="teacher_model: is imitated layer by layer, but it has 2 layers, and the st"):
        parts("tinybert", model("minilm", 8, 4), model("minilm", 8, 2))


def test_predictions_for_other_classes_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"the teacher gives \(4, 1\) where the student gives \(4, 3\)"):
        soft_cross_entropy(torch.zeros(4, 3), torch.zeros(4, 1))


def test_students_that_cannot_be_compared_are_refused() -> None:
    teacher = model("minilm", 16, 2)
    with pytest.raises(ConfigError, match="leads to a width of 8 in the student, but the teacher's layers have 16"):
        parts("tinybert", model("minilm", 8, 2), teacher)
    with pytest.raises(ConfigError, match="attention_distill: is true, but the student has 4 attention heads"):
        parts("tinybert", model("minilm", 16, 2, num_attention_heads=4), teacher)


@pytest.mark.parametrize("name", ["minilm", "tinybert", "tinybert_td"])
def test_without_a_teacher_nothing_is_learnt(name: str) -> None:
    with pytest.raises(
        ConfigError, match="loss: imitates a teacher, but no teacher predicts the batches. Use task: dis"
    ):
        losses[name](losses[name].Parameters())(model("minilm", 8, 1), BATCH)


def test_imitating_nothing_is_refused() -> None:
    for name, keys in (("tinybert", {}), ("tinybert_td", {"cls_predict_distill": False})):
        known = losses[name].Parameters(attention_distill=False, hidden_distill=False, **keys)
        assert [key for key, _ in known.conflicts()] == ["attention_distill"]


def test_weights_of_classes_which_nothing_would_read_are_refused() -> None:
    known = losses["tinybert_td"].Parameters(class_weights=[1.0, 2.0])
    assert [key for key, _ in known.conflicts()] == ["class_weights"]
