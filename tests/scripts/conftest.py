"""Runs of light networks, as written by x-train, for the scripts that export them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from xdpx.config.loading import resolve

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


class Light(NamedTuple):
    """A trained light network, the folder of its run, and a batch for it."""

    model: Any
    run: Path
    inputs: tuple[torch.Tensor, ...]


@pytest.fixture(params=LIGHT, ids=[name for _, name, _ in LIGHT])
def light(request: pytest.FixtureRequest, tmp_path: Path) -> Light:
    kind, name, keys = request.param
    tokens = torch.tensor([[2, 4, 5, 2, 0], [3, 4, 0, 0, 0]])
    inputs = (tokens, tokens != 0) if kind == "single" else (tokens, tokens != 0, tokens[:, :2], tokens[:, :2] != 0)
    return Light(trained(tmp_path, kind, name, keys), tmp_path / "run", inputs)


def trained(folder: Path, kind: str, name: str, keys: dict[str, Any]) -> Any:
    """Write a run as x-train would, and return its model."""
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
