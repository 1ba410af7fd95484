"""A light network leaves as one small file that gives the same logits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from xdpx.commands.script import main
from xdpx.config.faults import ConfigError
from xdpx.config.loading import resolve
from xdpx.inference import tracing
from xdpx.processors import processors
from xdpx.tokenizers.vocabulary import Vocabulary

WORDS = ["[PAD]", "[UNK]", "good", "bad", "film", "very"]
SIZES = {"embedding_dim": 4, "hidden_size": 8}
LIGHT = [
    ("single", "bow", {"embedding_dim": 4, "word_ngrams": 3, "ngram_buckets": 20}),
    ("single", "cls_cnn", {**SIZES, "pooling": "attn"}),
    ("single", "dpcnn", {**SIZES, "blocks": 3}),
    ("single", "gru", {**SIZES, "encoder_layers": 2}),
    ("single", "lstm", SIZES),
    ("pair", "dssm", SIZES),
    ("pair", "esim", SIZES),
    ("pair", "match_cnn", SIZES),
    ("pair", "re2", {**SIZES, "blocks": 2, "encoder_layers": 1, "fix_embeddings": False}),
]


def trained(folder: Path, kind: str, name: str, keys: dict[str, Any]) -> Any:
    """Leave a run as x-train does, by hand, and give its model."""
    data, run = folder / "data", folder / "run"
    data.mkdir(), run.mkdir()
    (data / "vocab.txt").write_text("".join(f"{word}\n" for word in WORDS))
    (data / "target_map.txt").write_text("neg\npos\n")
    meta = {"processor": kind, "max_len": 40, "vocab_size": len(WORDS), "num_classes": 2, "pad_index": 0}
    prepro = {"data_source": str(folder), "data_dir": str(data), "loader": kind, "tokenizer": "space"}
    (data / "args.py").write_text(repr({**prepro, "parser": "csv", **meta}))
    values = {"data_dir": str(data), "save_dir": str(run), "max_epoch": 1, "batch_size": 2, "eval_interval": 5,
              "major_metric": "acc", "learning_rate": 0.1, "loss": "cross_entropy"}  # fmt: skip
    values |= {"model": name, **meta, **keys}
    (run / "args.py").write_text(repr(values))
    torch.manual_seed(3)
    model = resolve(values, "x-train", source="test", strict=False, paths=False).build("model")
    torch.save(model.state_dict(), run / "checkpoint-5.pt")
    return model.eval()


@pytest.mark.parametrize(("kind", "name", "keys"), LIGHT)
def test_the_file_gives_the_logits_of_the_network(
    tmp_path: Path, kind: str, name: str, keys: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    model = trained(tmp_path, kind, name, keys)
    out = tmp_path / "out"
    config = {"save_dir": str(tmp_path / "run"), "checkpoint": "<last>", "out_dir": str(out)}
    (tmp_path / "export.json").write_text(json.dumps(config))
    assert main(["export_torchscript", str(tmp_path / "export.json")]) == 0
    text = capsys.readouterr().out
    assert "MB" in text
    assert "ms for a text of 8 tokens, on one thread" in text
    assert (out / "vocab.txt").read_text().split() == WORDS
    assert (out / "labels.txt").read_text() == "neg\npos\n"
    tokens = torch.tensor([[2, 4, 5, 2, 0], [3, 4, 0, 0, 0]])
    inputs = (tokens, tokens != 0) if kind == "single" else (tokens, tokens != 0, tokens[:, :2], tokens[:, :2] != 0)
    assert len(json.loads((out / "inputs.json").read_text())["inputs"]) == len(inputs)
    assert torch.allclose(torch.jit.load(str(out / "model.pth"))(*inputs), model(*inputs), atol=1e-5)


class DecidesByLength(torch.nn.Module):
    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return tokens.float() if tokens.shape[1] > 3 else -tokens.float()


class DecidesByWords(torch.nn.Module):
    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return tokens.float() if bool((tokens[:, 0] == tokens[:, 1]).all()) else -tokens.float()


class Twins(torch.nn.Module):
    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return tokens.float(), tokens.float()


def test_several_outputs_are_refused_in_words() -> None:
    with pytest.raises(ConfigError, match="Twins gives several outputs"):
        tracing.trace(Twins(), {"tokens": torch.ones(1, 2)}, [])


def test_the_words_of_a_probe_differ_and_are_no_padding() -> None:
    kind = processors["single"]
    probe = tracing.sample_inputs(kind(kind.Parameters(max_len=9), vocabulary=Vocabulary(WORDS)), [4, 3])
    assert probe["tokens"].tolist() == [[1, 2, 3, 4], [5, 1, 2, 0]]
    with pytest.raises(ConfigError, match="DecidesByWords traced gives other logits"):
        tracing.trace(DecidesByWords(), {"tokens": torch.ones(2, 2)}, [{"tokens": probe["tokens"][:, :2]}])


def test_a_network_that_decides_by_the_length_is_refused() -> None:
    long, short = ({"tokens": torch.ones(1, length)} for length in (5, 2))
    with pytest.raises(ConfigError, match=r"DecidesByLength traced gives other logits for an input of shape \(1, 2\)"):
        tracing.trace(DecidesByLength(), long, [short])
