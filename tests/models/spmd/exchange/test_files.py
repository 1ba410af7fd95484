from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from transformers import BertConfig, BertModel

from xdpx.checkpoints.trusted import DamagedFile, load_safetensors, load_weights
from xdpx.config.faults import ConfigError
from xdpx.models.spmd.exchange import hf_bert
from xdpx.models.spmd.exchange.files import read_table


def no_pickles(path: str) -> dict[str, torch.Tensor]:
    assert path.endswith(".safetensors")
    return load_safetensors(path)


def test_weights_that_are_read_here_and_given_again_are_those_of_transformers(tmp_path: Path) -> None:
    sizes = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    model = BertModel(BertConfig(**sizes, num_attention_heads=2, max_position_embeddings=8))
    model.save_pretrained(tmp_path / "theirs")
    exchange = hf_bert.encoder_exchange(model.config.to_dict(), pooler=True)
    tree = exchange.take(read_table(str(tmp_path / "theirs"), no_pickles))
    model.config.save_pretrained(tmp_path / "ours")
    ours = {name: np.ascontiguousarray(value) for name, value in exchange.give(tree).items()}
    save_file(ours, tmp_path / "ours" / "model.safetensors", metadata={"format": "pt"})
    again = BertModel.from_pretrained(tmp_path / "ours")
    for name, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name


def test_half_precision_is_read_as_float32_with_the_same_numbers(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    half = torch.randn(3).bfloat16()
    save_file({"w": half}, tmp_path / "model.safetensors")
    found = read_table(str(tmp_path), no_pickles)["w"]
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, half.float())


def test_a_file_that_was_cut_short_is_told_by_its_path(tmp_path: Path) -> None:
    save_file({"w": np.ones(8, np.float32)}, tmp_path / "model.safetensors")
    whole = (tmp_path / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[:-4])
    with pytest.raises(DamagedFile, match=r"model\.safetensors: is not a complete safetensors file"):
        read_table(str(tmp_path), load_weights)


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="contains no model.safetensors"):
        read_table(str(tmp_path), no_pickles)
