"""Pre-training that can be read: texts with their masks, guesses and classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from xdpx.config.faults import ConfigError
from xdpx.losses import losses
from xdpx.tasks import tasks
from xdpx.tasks.diagnosis import text_of

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "##d"]
IDS = torch.tensor([[2, 5, 4, 8, 3], [2, 4, 6, 3, 0]])
MASK = IDS > 0
BATCH = {
    "net_input": {"input_ids": IDS, "attention_mask": MASK, "masked_positions": torch.tensor([2, 6])},
    "target": torch.tensor([7, 5]),
    "cls_target": torch.tensor([1, 0]),
}


class Fixed(nn.Module):
    """Guesses b and a at the masks, and class 1 for every text."""

    def __init__(self, told: Tensor | None) -> None:
        super().__init__()
        self.told = told

    def forward(self, **net_input: Tensor) -> Any:
        tokens = torch.eye(9)[[6, 5]] * 9
        return tokens if self.told is None else (tokens, self.told)


def make(name: str, loss: str, model: nn.Module, folder: Path, **keys: Any) -> Any:
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    kind, chosen = tasks[name], losses[loss]
    known = kind.Parameters(model="bert_lm", loss=loss, max_len=6, data_dir=str(folder), **keys)
    return kind(known, model, chosen(chosen.Parameters()))


def read(task: Any, batch: Any, labels: list[str] | None = None) -> list[dict[str, str]]:
    found = {name: value.numpy() for name, value in task.valid_step(batch).items() if value.ndim}
    return [dict(zip(task.header(), row, strict=True)) for row in task.rows(found, labels)]


@pytest.mark.parametrize(("name", "keys"), [("slm", {}), ("rmr", {"max_messages": 2})])
def test_texts_without_masks_are_refused(name: str, keys: dict[str, Any], tmp_path: Path) -> None:
    class Classes(nn.Module):
        def forward(self, tokens: Tensor) -> Tensor:
            return torch.zeros(len(tokens), 2)

    batch = {"net_input": {"tokens": IDS}, "target": torch.tensor([1, 0])}
    with pytest.raises(ConfigError, match="task: reads masked tokens, but no tokens are masked"):
        make(name, "cross_entropy", Classes(), tmp_path, **keys).valid_step(batch)


def test_a_text_is_shown_with_its_masks_its_guesses_and_its_class(tmp_path: Path) -> None:
    task = make("slm", "bert", Fixed(torch.tensor([[0.0, 2.0], [0.0, 2.0]])), tmp_path)
    first, second = read(task, BATCH, ["no", "yes"])
    assert (first["origin_text"], first["input_text"], first["mask_pred"]) == ("a cd", "a [MASK]d", "b")
    assert (second["origin_text"], second["input_text"], second["mask_pred"]) == ("a b", "[MASK] b", "a")
    assert (first["cls_targets"], first["cls_pred"], second["cls_targets"]) == ("yes", "yes", "no")
    assert first["cls_probs"].startswith("[0.119203, ")


def test_where_no_class_is_learned_its_cells_are_empty(tmp_path: Path) -> None:
    row = read(make("slm", "masked_lm", Fixed(None), tmp_path), BATCH)[0]
    assert (row["mask_pred"], row["cls_targets"], row["cls_pred"], row["cls_probs"]) == ("b", "", "", "")


def test_what_is_scored_does_not_change(tmp_path: Path) -> None:
    model = Fixed(torch.tensor([[0.0, 2.0], [0.0, 2.0]]))
    found = make("slm", "bert", model, tmp_path).valid_step(BATCH)
    plain = losses["bert"](losses["bert"].Parameters()).predictions(model, BATCH)
    assert {name: found[name].tolist() for name in plain} == {name: each.tolist() for name, each in plain.items()}


def test_a_session_is_shown_message_by_message(tmp_path: Path) -> None:
    session = {
        "net_input": {
            "input_ids": torch.stack([IDS[0], torch.zeros_like(IDS[0])])[None],
            "attention_mask": torch.stack([MASK[0], torch.zeros_like(MASK[0])])[None],
            "masked_positions": torch.tensor([2]),
        },
        "target": torch.tensor([7]),
        "cls_target": torch.tensor([[1, 0]]),
    }

    class Model(nn.Module):
        def forward(self, **net_input: Tensor) -> Any:
            return torch.eye(9)[[6]] * 9, torch.tensor([[2.0, -1.0]])

    task = make("rmr", "rmr", Model(), tmp_path, max_messages=4)
    (row,) = read(task, session)
    assert row == {
        "session_text": "a [MASK]d", "session_mask_target": "c", "session_mask_pred": "b",
        "session_prob": "[0.8808]", "session_target": "a [MASK]d", "session_pred": "a [MASK]d",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["slm", "rmr"])
def test_parts_of_the_held_out_data_are_drawn_from_everywhere(name: str) -> None:
    assert tasks[name].shuffles_held_out
    assert not tasks["default"].shuffles_held_out


def test_pieces_of_words_are_joined() -> None:
    assert text_of([5, 6, 8], WORDS) == "a bd"
    assert text_of([0, 1, 2], ["\u0120bo", "b", "\u0120sees"]) == "bob sees"
