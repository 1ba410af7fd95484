"""The decoder of x-train: Llama's numbers, names and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from xdpx.checkpoints.trusted import load_weights
from xdpx.config.faults import ConfigError
from xdpx.models.pytorch.causal_lm import CausalLanguageModel

SIZES: dict[str, Any] = {"vocab_size": 30, "pad_index": 0, "hidden_size": 16, "num_hidden_layers": 2,
                         "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 24,
                         "max_position_embeddings": 12}  # fmt: skip


@pytest.fixture
def llama(tmp_path: Path) -> LlamaForCausalLM:
    """A model in Hugging Face format, and its files."""
    torch.manual_seed(0)
    sizes = {name: value for name, value in SIZES.items() if name != "pad_index"}
    model = LlamaForCausalLM(LlamaConfig(**sizes)).eval()
    model.save_pretrained(tmp_path / "llama")
    return model


def test_a_llama_is_taken_over_with_its_architecture(llama: LlamaForCausalLM, tmp_path: Path) -> None:
    model = CausalLanguageModel(CausalLanguageModel.Parameters(pretrained_model=str(tmp_path / "llama")))
    model.load_pretrained(load_weights)
    assert set(model.state_dict()) == set(llama.state_dict())
    ids = torch.tensor([[3, 4, 5, 6, 0, 0], [7, 8, 9, 10, 11, 12]])
    mask = ids != 0
    wanted = llama(input_ids=ids, attention_mask=mask).logits
    torch.testing.assert_close(model.eval()(ids, mask)[mask], wanted[mask])


def test_what_comes_later_changes_nothing_before(llama: LlamaForCausalLM) -> None:
    model = CausalLanguageModel(CausalLanguageModel.Parameters(**SIZES)).eval()
    ids = torch.tensor([[3, 4, 5, 6]])
    changed = torch.tensor([[3, 4, 9, 8]])
    mask = torch.ones_like(ids).bool()
    torch.testing.assert_close(model(ids, mask)[:, :2], model(changed, mask)[:, :2])


def test_nothing_decays_in_norms_and_every_weight_is_in_one_group() -> None:
    model = CausalLanguageModel(CausalLanguageModel.Parameters(**SIZES))
    decayed, plain = model.parameter_groups(0.1)
    assert plain["weight_decay"] == 0.0
    assert "weight_decay" not in decayed
    assert all(weight.ndim == 1 for weight in plain["params"])
    assert len(decayed["params"]) + len(plain["params"]) == len(list(model.parameters()))


@pytest.mark.parametrize(("keys", "said"), [({"max_len": 13}, "max_len"), ({"vocab_size": 31}, "vocab_size")])
def test_data_that_does_not_fit_is_refused(llama: Any, tmp_path: Path, keys: dict[str, Any], said: str) -> None:
    known = CausalLanguageModel.Parameters(pretrained_model=str(tmp_path / "llama"), **keys)
    with pytest.raises(ConfigError, match=said):
        CausalLanguageModel(known)


def test_another_kind_of_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ConfigError, match="describes a bert"):
        CausalLanguageModel(CausalLanguageModel.Parameters(pretrained_model=str(tmp_path)))
