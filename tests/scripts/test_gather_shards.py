"""A sharded checkpoint becomes plain weights."""

import json

import pytest
import torch
from torch import nn

from xdpx.commands.script import main
from xdpx.config.faults import ConfigError
from xdpx.engines.pytorch.strategies import shard_files
from xdpx.trainer.files.model_files import load_model


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("steps", torch.tensor(7))


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "checkpoint-3"
    folder.mkdir()
    model = Tied()
    shard_files.save(str(folder), model, torch.optim.AdamW(model.parameters()))
    (folder / "config.json").write_text(json.dumps({"model_type": "tied"}))
    (folder / "trainer_state.json").write_text("{}")
    return folder, model


def test_the_weights_are_whole_and_lie_beside_the_configuration(checkpoint, tmp_path, capsys):
    folder, model = checkpoint
    assert main(["gather_shards", str(folder), str(tmp_path / "whole")]) == 0
    assert sorted(each.name for each in (tmp_path / "whole").iterdir()) == ["config.json", "model.safetensors"]
    fresh = Tied()
    load_model(fresh, str(tmp_path / "whole"))
    assert torch.equal(fresh.head.weight, model.head.weight)
    assert int(fresh.steps) == 7
    assert shard_files.read_whole(str(folder))["steps"].shape == ()
    assert "2 weights of" in capsys.readouterr().out


def test_a_checkpoint_without_shards_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="pytorch_model_fsdp_0: there is no such folder"):
        main(["gather_shards", str(tmp_path), str(tmp_path / "whole")])


def test_a_folder_alone_is_that_of_a_sharded_x_prepro(tmp_path):
    with pytest.raises(ConfigError, match="not the data_dir of a sharded x-prepro"):
        main(["gather_shards", str(tmp_path)])
