"""Names, keys and defaults of the light networks, which stand in users' configs: they may become more, never others."""

from __future__ import annotations

import pytest

from xdpx.commands.script import SHIPPED
from xdpx.config import catalogue
from xdpx.config.declarations import REQUIRED

TABLE = {
    "embedding_dim": REQUIRED,
    "dropout": 0.2,
    "fix_embeddings": False,
    "pretrained_model": None,
    "strict_size": True,
}
POOLED = {
    **TABLE, "hidden_size": REQUIRED, "encoder_layers": None, "pooling": "max", "pool_hidden_size": None,
    "pool_output_size": None,
}  # fmt: skip
WINDOWS = {**POOLED, "kernel_sizes": [3]}
KEYS = {
    "bow": {**TABLE, "word_ngrams": 1, "ngram_buckets": 100_000},
    "cls_cnn": {**WINDOWS, "residual": False},
    "cls_cnn_bce": {**WINDOWS, "residual": False},
    "cnn_regression": {**WINDOWS, "residual": False, "standardize": False},
    "dpcnn": {**TABLE, "hidden_size": REQUIRED, "blocks": 4},
    "dssm": {
        **TABLE, "hidden_size": REQUIRED, "output_size": None, "encoder_layers": None, "share_towers": True,
        "prediction": "classes",
    },
    "esim": {**TABLE, "hidden_size": REQUIRED},
    "gru": POOLED,
    "lstm": POOLED,
    "match_cnn": {**WINDOWS, "prediction": "full"},
    "match_gru": {**POOLED, "prediction": "full"},
    "match_lstm": {**POOLED, "prediction": "full"},
    "re2": {
        **TABLE, "hidden_size": REQUIRED, "blocks": REQUIRED, "encoder_layers": REQUIRED, "fix_embeddings": True,
        "kernel_sizes": [3], "alignment": "linear", "prediction": "full",
    },
    "xdp_cls_cnn": {**WINDOWS, "residual": False},
    "xdp_cls_cnn_bce": {**WINDOWS, "residual": False},
}  # fmt: skip


@pytest.mark.parametrize("name", KEYS)
def test_a_light_network_keeps_its_keys_and_defaults(name: str) -> None:
    declared = {item.key: item.default for item in catalogue.entry("model", name).parameters}
    assert {key: declared.get(key, "gone") for key in KEYS[name]} == KEYS[name]


@pytest.mark.parametrize("name", ["export_torchscript", "export_onnx"])
def test_the_scripts_that_ship_them_keep_their_names_and_keys(name: str) -> None:
    assert name in SHIPPED
    declared = {item.key for item in catalogue.entry("command", f"x-script {name}").parameters}
    assert declared >= {"save_dir", "checkpoint", "out_dir"}
