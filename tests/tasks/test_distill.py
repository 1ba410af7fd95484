"""On-line distillation: a fixed teacher, asked without dropout; only the student is trained, copied and kept."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from xdpx.config.faults import ConfigError
from xdpx.losses import losses
from xdpx.tasks import tasks
from xdpx.tasks.distill import _teacher_of, refuse_other_numbers

IDS = torch.tensor([[2, 5, 7, 3], [2, 6, 3, 0]])
BATCH = {"net_input": {"input_ids": IDS, "attention_mask": IDS > 0}, "target": torch.tensor([0, 2])}


class Bag(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(8, 3, mode="sum")
        self.dropout = nn.Dropout(dropout)


class Teacher(Bag):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.dropout(self.table(input_ids * attention_mask))  # type: ignore[no-any-return]


class Light(Bag):
    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        return self.table(tokens * mask)  # type: ignore[no-any-return]


def make(make_teacher: Any, loss: str = "distill", **keys: Any) -> Any:
    kind, chosen = tasks["distill"], losses[loss]
    known = kind.Parameters(
        loss=loss, teacher_model="bert_classification", teacher_pretrained_model="t.pt", student_model="cls_cnn"
    )
    return kind(known, Light(), chosen(chosen.Parameters(**keys)), make_teacher=make_teacher)


@pytest.mark.parametrize("name", ["distill", "static_distill", "bce_distill"])
def test_the_loss_is_that_of_written_logits_and_needs_no_dropout_of_the_teacher(name: str) -> None:
    teacher = Teacher(dropout=0.5)
    task = make(lambda: teacher, name, distill_temperature=2.0, gold_loss_lambda=0.3)
    found, count, _ = task.train_step(BATCH)
    plain = {"tokens": IDS, "mask": IDS > 0}
    written = {**BATCH, "net_input": plain, "teacher_logits": teacher.eval()(**BATCH["net_input"])}
    wanted, _, _ = task.loss(task.model, written)
    assert (found.item(), count) == (pytest.approx(wanted.item()), 2)


def test_only_the_student_learns_and_is_kept() -> None:
    teacher = Teacher()
    task = make(lambda: teacher)
    task.train_step(BATCH)[0].backward()
    assert [name for name, _ in task.model.named_parameters()] == ["table.weight"]
    assert task.model.table.weight.grad.abs().sum() > 0
    assert teacher.table.weight.grad is None


def test_scoring_never_needs_the_teacher() -> None:
    def gone() -> Teacher:
        raise FileNotFoundError("teacher.pt")

    task = make(gone)
    assert task.valid_step(BATCH)["prob"].shape == (2, 3)
    with pytest.raises(FileNotFoundError):
        task.train_step(BATCH)


def test_a_run_that_goes_on_with_another_teacher_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    teacher = Teacher()
    task = make(lambda: teacher)
    assert task.state_dict() == {}
    task.train_step(BATCH)
    for again, told in ((copy.deepcopy(teacher), False), (Teacher(), True)):
        resumed = make(lambda again=again: again)
        resumed.load_state_dict(task.state_dict())
        resumed.train_step(BATCH)
        warned = capsys.readouterr().err
        assert ("the weights in t.pt are not those that this run has learned from (t.pt)" in warned) == told
        assert (resumed.state_dict() == task.state_dict()) != told


def test_the_teacher_is_made_once_moves_no_dropout_and_is_shared_by_copies() -> None:
    made = []

    def one() -> Teacher:
        made.append(Teacher())
        return made[-1]

    task = make(one)
    torch.manual_seed(4)
    expected = torch.rand(3)
    torch.manual_seed(4)
    task.train_step(BATCH)
    assert torch.equal(torch.rand(3), expected)
    copy.deepcopy(task).train_step(BATCH)
    assert len(made) == 1


def test_a_loss_that_knows_no_teacher_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"loss: is 'cross_entropy', which cannot learn from a teacher\. Use distill"):
        make(Teacher, "cross_entropy")


def test_a_teacher_of_other_words_or_classes_is_refused(tmp_path: Path) -> None:
    folder, data = tmp_path / "teacher", tmp_path / "data"
    for each, classes in ((folder, "good\nbad\n"), (data, "bad\ngood\n")):
        each.mkdir()
        (each / "vocab.txt").write_text("a\nb\n")
        (each / "target_map.txt").write_text(classes)
    both = (str(folder), str(data), ("vocab.txt", "target_map.txt"))
    refuse_other_numbers(*both)  # not the folder of a run
    (folder / "args.py").write_text("")
    with pytest.raises(ConfigError, match="teacher_pretrained_model: is of .* whose target_map.txt differs"):
        refuse_other_numbers(*both)
    refuse_other_numbers(str(folder), str(data), ("vocab.txt",))


def test_a_teacher_of_transformers_whose_labels_are_in_another_order_is_refused(tmp_path: Path) -> None:
    folder, data = tmp_path / "teacher", tmp_path / "data"
    for each in (folder, data):
        each.mkdir()
    (folder / "config.json").write_text(json.dumps({"id2label": {"0": "good", "1": "bad"}}))
    (data / "target_map.txt").write_text("bad\ngood\n")
    task = SimpleNamespace(teacher_pretrained_model=str(folder))
    run: Any = SimpleNamespace(parameters=lambda kind: task, values={"data_dir": str(data)})
    with pytest.raises(ConfigError, match="teacher_pretrained_model: is .* the same labels in another order"):
        _teacher_of(run, make(Teacher).loss)
