"""Heads that matter little are found, taken out, and stay out in what is saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from xdpx.commands.script import main
from xdpx.config.faults import ConfigError
from xdpx.config.loading import resolve
from xdpx.models.pytorch import pruning

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "very"]
SIZES = {
    "hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 16,
    "max_position_embeddings": 16, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip


def build(values: dict[str, Any], **more: Any) -> Any:
    torch.manual_seed(3)
    return resolve({**values, **more}, "x-train", source="test", strict=False, paths=False).build("model")


@pytest.fixture
def values(tmp_path: Path) -> dict[str, Any]:
    """A run of a small BERT, with the data it was trained on."""
    data, run = tmp_path / "data", tmp_path / "run"
    data.mkdir(), run.mkdir()
    (data / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))
    (data / "target_map.txt").write_text("neg\npos\n")
    meta = {"processor": "bert_single", "max_len": 8, "vocab_size": len(WORDS), "num_classes": 2, "pad_index": 0,
            "cls_index": 2, "sep_index": 3}  # fmt: skip
    prepro = {"data_source": str(tmp_path), "data_dir": str(data), "loader": "single", "tokenizer": "space",
              "parser": "csv", **meta}  # fmt: skip
    (data / "args.py").write_text(repr(prepro))
    (tmp_path / "rows.txt").write_text("good film\tpos\nbad film\tneg\nvery bad\tneg\nvery good film\tpos\n" * 3)
    known = {"data_dir": str(data), "save_dir": str(run), "max_epoch": 1, "batch_size": 4, "eval_interval": 5,
             "major_metric": "acc", "learning_rate": 0.1, "loss": "cross_entropy", "model": "bert_classification",
             "pretrained_model": None, **meta, **SIZES}  # fmt: skip
    (run / "args.py").write_text(repr(known))
    torch.save(build(known).state_dict(), run / "checkpoint-5.pt")
    return known


def prune(tmp_path: Path, values: dict[str, Any], **keys: Any) -> int:
    rows = str(tmp_path / "rows.txt")
    config = {"save_dir": values["save_dir"], "checkpoint": "<last>", "train_subset": rows, "valid_subset": rows,
              "train_steps": 2, "save_path": str(tmp_path / "pruned"), **keys}  # fmt: skip
    (tmp_path / "prune.json").write_text(json.dumps(config))
    return main(["prune_heads", str(tmp_path / "prune.json")])


def test_pruned_weights_are_read_back_as_the_pruned_network(tmp_path: Path, values: dict[str, Any], capsys) -> None:
    assert prune(tmp_path, values, prune_config={"0": 1, "-1": 2}) == 0
    assert "before" in capsys.readouterr().out
    heads = json.loads((tmp_path / "pruned" / "config.json").read_text())["pruned_heads"]
    assert [len(heads[layer]) for layer in ("0", "1")] == [1, 2]
    again = build(values, pretrained_model=str(tmp_path / "pruned"))
    assert [layer.attention.self.num_attention_heads for layer in again.bert.encoder.layer] == [3, 2]
    # Nothing else has changed: the same network with these heads silent gives the same.
    whole = build(values)
    whole.load_state_dict(torch.load(Path(values["save_dir"]) / "checkpoint-5.pt", weights_only=True))
    for layer, gone in heads.items():
        columns = whole.bert.encoder.layer[int(layer)].attention.output.dense.weight.data
        for head in gone:
            columns[:, head * 4 : (head + 1) * 4] = 0.0
    ids = torch.tensor([[2, 5, 7, 3]])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    again.bert.load_state_dict(torch.load(tmp_path / "pruned" / "pytorch_model.bin", weights_only=True), strict=False)
    assert torch.allclose(again.eval().pool(**inputs), whole.eval().pool(**inputs), atol=1e-6)


def test_heads_are_measured_on_the_loss_of_held_out_data_which_needs_no_teacher(
    tmp_path: Path, values: dict[str, Any]
) -> None:
    (Path(values["save_dir"]) / "args.py").write_text(repr({**values, "loss": "static_distill"}))
    assert prune(tmp_path, values, prune_config={"0": 1}) == 0


def test_importance_is_the_derivative_by_a_factor_on_the_heads_output(values: dict[str, Any]) -> None:
    model = build(values).double().eval()
    ids = torch.tensor([[2, 5, 7, 3], [2, 6, 8, 3]])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def loss() -> torch.Tensor:
        return torch.nn.functional.cross_entropy(model(**inputs), torch.tensor([1, 0]))

    found = pruning.importances(model.bert, [loss()])
    for layer, row in zip(pruning.outputs(model.bert), found, strict=True):
        slopes = []
        for head in range(4):
            columns = layer.weight.data[:, head * 4 : (head + 1) * 4]
            before = columns.clone()
            scores = []
            for factor in (1 + 1e-5, 1 - 1e-5):
                columns.copy_(before * factor)
                scores.append(float(loss().detach()))
            columns.copy_(before)
            slopes.append(abs(scores[0] - scores[1]) / 2e-5)
        assert row.numpy() == pytest.approx(np.array(slopes) / np.linalg.norm(slopes), abs=1e-4)


def test_a_layer_keeps_one_head_and_must_exist(tmp_path: Path, values: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="takes 4 of the 4 heads of layer 0; one must remain"):
        prune(tmp_path, values, prune_config={"0": 4})
    with pytest.raises(ConfigError, match="names layer 5, but there are 2 layers"):
        prune(tmp_path, values, prune_config={"5": 1})
    with pytest.raises(ConfigError, match=r"prune_config .*: names the layers \['first'\]"):
        prune(tmp_path, values, prune_config={"first": 1})
