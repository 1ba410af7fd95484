"""Encoders by name: they are what transformers makes of the same weights, whatever their kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModel

from xdpx.config.faults import ConfigError
from xdpx.models import models
from xdpx.models.pytorch import encoders
from xdpx.models.pytorch.bert import positions_of

KINDS = ["bert", "roberta", "albert", "electra", "deberta", "deberta-v2", "modernbert", "distilbert", "mpnet"]
"""Most leave attention to torch's kernels; DeBERTa and MPNet have one of their own, and another form of masks."""
SIZES: dict[str, Any] = {
    "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 4, "intermediate_size": 32,
    "max_position_embeddings": 40, "vocab_size": 30, "num_classes": 3, "pad_index": 0,
}  # fmt: skip
IDS = torch.tensor([[2, 5, 6, 7, 8, 3], [2, 9, 3, 0, 0, 0]])
TOKEN_TYPES = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 0, 0]])


def build(name: str = "bert_classification", pretrained_model: str | None = None, **keys: Any) -> Any:
    torch.manual_seed(0)
    kind = models[name]
    return kind(kind.Parameters(pretrained_model=pretrained_model, **keys)).eval()


def read(path: str) -> Any:
    return load_file(path)


@pytest.mark.parametrize("model_type", KINDS)
def test_every_encoder_gives_what_transformers_gives_for_its_weights(model_type: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    config = encoders.new_config(model_type, {key: SIZES[key] for key in list(SIZES)[:5]})
    config.vocab_size, config.pad_token_id = 30, 0
    reference = AutoModel.from_config(config).eval()
    for weight in reference.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    reference.save_pretrained(tmp_path)
    ours = build(pretrained_model=str(tmp_path / "model.safetensors"), num_classes=3)
    ours.load_pretrained(read)
    segments = {"token_type_ids": TOKEN_TYPES} if getattr(config, "type_vocab_size", 0) > 1 else {}
    mask = IDS != 0
    with torch.no_grad():
        expected = reference(input_ids=IDS, attention_mask=mask.long(), **segments).last_hidden_state
        found = ours.encode(IDS, mask, TOKEN_TYPES).last_hidden_state
    assert torch.allclose(found[mask], expected[mask], atol=1e-5)


@pytest.mark.parametrize("model_type", KINDS)
def test_padding_means_nothing_to_any_encoder(model_type: str) -> None:
    model = build(model_type=model_type, **SIZES)
    alone = model(IDS[1:, :3], IDS[1:, :3] != 0, TOKEN_TYPES[1:, :3])
    assert torch.allclose(model(IDS, IDS != 0, TOKEN_TYPES)[1:], alone, atol=1e-6)


@pytest.mark.parametrize("model_type", ["roberta", "mpnet", "ibert", "distilbert"])
def test_the_longest_text_is_as_long_as_the_model_has_positions(model_type: str) -> None:
    model = build(model_type=model_type, **{**SIZES, "pad_index": 1, "max_position_embeddings": 12})
    fits, beyond = (torch.full((1, positions_of(model.config) + more), 5) for more in (0, 1))
    model(fits, fits > 0)
    with pytest.raises(ConfigError, match="max_len: is"):
        model(beyond, beyond > 0)
    with pytest.raises((IndexError, RuntimeError)):
        model.bert(input_ids=beyond)


def test_a_kernel_that_config_json_asks_for_need_not_be_there() -> None:
    for model_type in ("bert", "mpnet"):
        model = build(model_type=model_type, **SIZES, extra_config={"_attn_implementation": "flash_attention_2"})
        assert model.bert.config._attn_implementation == ("xdpx" if model_type == "bert" else "eager")


def test_an_encoder_that_reads_padding_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    for model_type in ("fnet", "mpnet"):
        build(model_type=model_type, **SIZES)
        assert ("'fnet' reads padding" in "".join(capsys.readouterr())) == (model_type == "fnet")


@pytest.mark.parametrize("model_type", KINDS)
def test_layers_are_trained_slower_the_deeper_they_lie(model_type: str) -> None:
    model = build(model_type=model_type, **SIZES, layer_lr_decay=0.5, keep_emb_lr=False, top_lr_ratio=4.0)
    rates = {group["name"].removesuffix(", no decay"): group["lr"] for group in model.parameter_groups(1.0)}
    assert rates["embeddings"] == 0.5**4
    assert rates["top"] == 4.0
    if model_type != "albert":
        assert [rates[f"layer {number}"] for number in range(4)] == [0.125, 0.25, 0.5, 1.0]
    biases = [group for group in model.parameter_groups(1.0) if group["name"].endswith("no decay")]
    assert all(weight.ndim == 1 for group in biases for weight in group["params"] if weight.shape[0] != 1)


def test_what_projects_narrow_embeddings_to_the_layers_is_trained_as_embeddings() -> None:
    keys = {"model_type": "electra", "extra_config": {"embedding_size": 4}, "layer_lr_decay": 0.5, "bert_wd": 0.3}
    model = build(**SIZES, **keys, keep_emb_lr=False, top_lr_ratio=4.0)
    project = model.bert.embeddings_project.weight
    group = next(each for each in model.parameter_groups(1.0) if any(one is project for one in each["params"]))
    assert (group["name"], group["lr"], group["weight_decay"]) == ("embeddings", 0.5**4, 0.3)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("bert.embed_tokens.weight", "embeddings"),  # eurobert
        ("bert.char_embeddings.char_position_embeddings.weight", "embeddings"),  # canine
        ("bert.LayerNorm.weight", "layers"),  # roberta-prelayernorm: after the last layer
        ("bert.norm.weight", "layers"),
        ("bert.encoder.rel_embeddings.weight", "layers"),
        ("bert.pooler.dense.weight", "top"),
        ("classifier.weight", "top"),
    ],
)
def test_weights_of_an_encoder_are_not_trained_as_those_above_it(name: str, part: str) -> None:
    model = build(model_type="bert", pretrained_model=None, top_lr_ratio=10.0, **SIZES)
    assert model._depth(name, 1.0) == (part, 10.0 if part == "top" else 1.0)


def test_a_named_model_takes_the_sizes_that_only_it_has() -> None:
    model = build("albert_classification", **SIZES, embedding_size=8, num_hidden_groups=2)
    assert model.config.model_type == "albert"
    assert model.bert.embeddings.word_embeddings.weight.shape == (30, 8)
    assert len(model.bert.encoder.albert_layer_groups) == 2


def test_weights_decide_the_architecture_whatever_the_name_of_the_model(tmp_path: Path) -> None:
    config = AutoConfig.for_model("electra", hidden_size=16, num_hidden_layers=1, num_attention_heads=2, vocab_size=30)
    AutoModel.from_config(config).save_pretrained(tmp_path)
    assert build("roberta_classification", str(tmp_path), num_classes=2).config.model_type == "electra"


def test_a_size_overrides_config_json_under_the_name_that_it_has_there(tmp_path: Path) -> None:
    config = AutoConfig.for_model("distilbert", dim=16, n_heads=2, n_layers=1, hidden_dim=32, vocab_size=30)
    AutoModel.from_config(config).save_pretrained(tmp_path)
    more = {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.2, "intermediate_size": 64}
    model = build(pretrained_model=str(tmp_path), vocab_size=30, num_classes=2, **more)
    assert (model.config.dropout, model.config.attention_dropout) == (0.3, 0.2)
    assert "has no such size" in model.idle_keys()["intermediate_size"]


def test_a_classifier_of_the_first_token_refuses_what_reads_from_left_to_right() -> None:
    with pytest.raises(ConfigError, match="'gpt2' sees nothing of the text"):
        build(model_type="gpt2", pretrained_model=None, **SIZES)


@pytest.mark.parametrize(
    ("model_type", "field", "meant"),
    [
        ("bert", "hidden_droput_prob", "hidden_dropout_prob"),
        ("modernbert", "hidden_dropout_prob", "mlp_dropout"),
        ("bert", "layer_norm_eps", ""),
        ("deberta-v2", "share_att_key", ""),  # read, though it has no default
    ],
)
def test_a_field_of_extra_config_that_is_none_is_told(model_type: str, field: str, meant: str) -> None:
    model = build(model_type=model_type, pretrained_model=None, extra_config={field: 0.1}, **SIZES)
    assert model.idle_keys().get("extra_config", "").endswith(f"Did you mean '{meant}'?" if meant else "")
    assert bool(meant) == ("extra_config" in model.idle_keys())


def test_an_architecture_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match="model_type: is 'modernbrt'.*Did you mean 'modernbert'"):
        build(model_type="modernbrt", **SIZES)
