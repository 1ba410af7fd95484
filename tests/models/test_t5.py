import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import T5Config, T5ForConditionalGeneration

from xdpx.checkpoints.trusted import load_tensors
from xdpx.config.faults import ConfigError
from xdpx.models import models

TINY = {"hidden_size": 8, "head_size": 4, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 16}


def build(**keys):
    kind = models["t5"]
    torch.manual_seed(0)
    return kind(kind.Parameters(**{**TINY, "vocab_size": 30, **keys}))


def inputs():
    ids = torch.tensor([[5, 6, 7, 2], [5, 2, 0, 0]])
    return {"input_ids": ids, "attention_mask": ids != 0, "decoder_input_ids": torch.tensor([[0, 8, 9], [0, 8, 0]])}


def test_it_is_t5_of_transformers(tmp_path):
    torch.manual_seed(1)
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 16, "num_layers": 2, "num_heads": 2, "vocab_size": 30}
    reference = T5ForConditionalGeneration(T5Config(**sizes, decoder_start_token_id=0)).eval()
    reference.save_pretrained(tmp_path)
    model = build(pretrained_model=str(tmp_path)).eval()
    model.load_pretrained(load_tensors)
    np.testing.assert_allclose(model(**inputs()).detach(), reference(**inputs()).logits.detach(), atol=1e-5)


def test_weights_that_a_file_lacks_are_told(tmp_path, capsys):
    weights = {name: value.clone() for name, value in build().t5.state_dict().items()}
    del weights["decoder.final_layer_norm.weight"]
    save_file(weights, tmp_path / "model.safetensors")
    build(pretrained_model=str(tmp_path)).load_pretrained(load_tensors)
    assert "lacks t5.decoder.final_layer_norm.weight, random at first" in "".join(capsys.readouterr())


def test_a_model_of_another_kind_is_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ConfigError, match="describes a bert"):
        build(pretrained_model=str(tmp_path))


def test_tokens_that_the_pretrained_model_lacks_are_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "t5", "vocab_size": 20, "d_model": 8}')
    with pytest.raises(ConfigError, match=r"vocab_size: is 30 .* knows 20"):
        build(pretrained_model=str(tmp_path))
