from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel

from xdpx.checkpoints import parts
from xdpx.trainer.files.model_files import ModelFiles, load_model, read_weights, without_aliases, write_weights
from xdpx.utils import io


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(6, 4)
        self.head = torch.nn.Linear(4, 6, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("seen", torch.zeros(()))


def small_gpt() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=40, n_positions=16))


def equal(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_a_model_of_ones_own_comes_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    model, other = Tied(), Tied()
    ModelFiles(model).write(str(tmp_path))
    assert sorted(load_file(tmp_path / parts.WEIGHTS)) == ["embedding.weight", "seen"]
    load_model(other, str(tmp_path))
    assert equal(model, other)
    assert other.head.weight is other.embedding.weight
    assert capsys.readouterr().err == ""


def test_large_weights_go_into_several_files(tmp_path: Path) -> None:
    weights = {f"layer.{i}": torch.full((100,), float(i)) for i in range(5)}
    write_weights(str(tmp_path), weights, largest_file=900)
    assert len(list(tmp_path.glob("model-0000?-of-00003.safetensors"))) == 3
    assert (tmp_path / parts.WEIGHTS_INDEX).exists()
    found = read_weights(str(tmp_path))
    assert all(torch.equal(found[name], weight) for name, weight in weights.items())


def test_of_tensors_that_share_memory_one_is_kept() -> None:
    whole = torch.arange(6.0)
    kept, aliases = without_aliases({"a": whole, "b": whole, "part": whole[2:], "none": torch.empty(0)})
    assert sorted(kept) == ["a", "none", "part"]
    assert aliases == {"b": "a"}
    assert kept["part"].tolist() == [2, 3, 4, 5]
    assert kept["part"].untyped_storage().data_ptr() != whole.untyped_storage().data_ptr()


def test_what_is_no_tensor_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="note in the state_dict is a str"):
        write_weights(str(tmp_path), {"note": "text"})


def test_a_model_of_transformers_is_stored_as_it_stores_itself(tmp_path: Path) -> None:
    model = small_gpt()
    ModelFiles(model).write(str(tmp_path / "ours"))
    model.save_pretrained(tmp_path / "theirs")
    ours = {path.name: path.read_bytes() for path in (tmp_path / "ours").iterdir()}
    theirs = {path.name: path.read_bytes() for path in (tmp_path / "theirs").iterdir()}
    assert ours == theirs
    assert equal(AutoModelForCausalLM.from_pretrained(tmp_path / "ours"), model)


def test_frozen_weights_are_those_of_that_moment(tmp_path: Path) -> None:
    model, same = small_gpt(), small_gpt()
    frozen = ModelFiles(model).frozen()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(3.0)
    frozen.write(str(tmp_path))
    assert "lm_head.weight" not in load_file(tmp_path / parts.WEIGHTS)  # still tied
    load_model(model, str(tmp_path))
    assert equal(model, same)


def test_tied_weights_of_transformers_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, other = small_gpt(), small_gpt()
    ModelFiles(model).write(str(tmp_path))
    monkeypatch.setattr(GPT2LMHeadModel, "from_pretrained", None)  # it would have to be read once more
    load_model(other, str(tmp_path))
    assert equal(model, other)


def test_weights_that_transformers_stores_under_other_names_find_their_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, other = small_gpt(), small_gpt()
    ModelFiles(model).write(str(tmp_path))
    stored = load_file(tmp_path / parts.WEIGHTS)
    without_prefix = {name.removeprefix("transformer."): value for name, value in stored.items()}
    save_file(without_prefix, tmp_path / parts.WEIGHTS, metadata={"format": "pt"})
    with torch.no_grad():
        other.transformer.wte.weight.zero_()
    load_model(other, str(tmp_path))
    assert equal(model, other)
    assert "warning" not in capsys.readouterr().err


def test_missing_and_unexpected_weights_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_weights(str(tmp_path), {"seen": torch.ones(()), "surplus": torch.ones(2)})
    load_model(Tied(), str(tmp_path))
    said = capsys.readouterr().err
    assert "There were missing keys in the checkpoint model loaded: embedding.weight" in said
    assert "There were unexpected keys in the checkpoint model loaded: surplus" in said


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    write_weights(str(tmp_path), {"embedding.weight": torch.ones(7, 4)})
    with pytest.raises(RuntimeError, match=r"embedding\.weight"):
        load_model(Tied(), str(tmp_path))


def test_a_head_of_other_size_is_refused_for_a_model_of_transformers(tmp_path: Path) -> None:
    sizes = {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
        "vocab_size": 9,
    }
    ModelFiles(BertForSequenceClassification(BertConfig(**sizes, num_labels=3))).write(str(tmp_path))
    with pytest.raises(RuntimeError, match=r"classifier\.weight"):
        load_model(BertForSequenceClassification(BertConfig(**sizes, num_labels=2)), str(tmp_path))


def test_weights_of_the_days_before_safetensors_are_read(tmp_path: Path) -> None:
    torch.save({"embedding.weight": torch.ones(6, 4), "seen": torch.ones(())}, tmp_path / parts.OLD_WEIGHTS)
    model = Tied()
    load_model(model, str(tmp_path))
    assert model.head.weight.sum() == 24


def test_a_folder_without_weights_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"contains no model\.safetensors"):
        load_model(Tied(), str(tmp_path))


def test_a_processing_class_is_stored_beside_the_weights(tmp_path: Path) -> None:
    class Processor:
        def save_pretrained(self, folder: str) -> None:
            (Path(folder) / "words.txt").write_text("a b")

    ModelFiles(Tied(), processing_class=Processor()).write(str(tmp_path))
    assert (tmp_path / "words.txt").read_text() == "a b"


def test_a_full_disk_is_an_error_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import safetensors.torch
    from safetensors import SafetensorError

    def full(*_: Any, **__: Any) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(OSError, match="No space left") as caught:
        ModelFiles(Tied()).write(str(tmp_path))
    assert caught.value.errno == errno.ENOSPC


class Adapted(torch.nn.Module):
    """What is asked of a model with adapters, in the way of peft."""

    def __init__(self, *active: str) -> None:
        super().__init__()
        self.active_adapters, self.loaded, self.chosen = list(active), [], ""

    def load_adapter(self, path: str, name: str, *, is_trainable: bool) -> None:
        self.loaded.append((Path(path).name, name, is_trainable))

    def set_adapter(self, name: str) -> None:
        self.chosen = name


def test_adapters_are_loaded_under_their_names(tmp_path: Path) -> None:
    alone, several = tmp_path / "alone", tmp_path / "several"
    for folder in (alone, several, several / "second"):
        folder.mkdir()
        (folder / parts.ADAPTER).write_bytes(b"")
    model = Adapted("mine")
    load_model(model, str(alone))
    assert (model.loaded, model.chosen) == ([("alone", "mine", True)], "mine")
    model = Adapted("second")
    load_model(model, str(several))
    assert model.loaded == [("several", "default", False), ("second", "second", True)]
    model = Adapted("mine")
    model.peft_config = {"mine": None}
    load_model(model, str(several))  # a callback has saved a copy there
    assert model.loaded == [("several", "mine", True)]


def test_a_model_goes_to_an_object_store_and_not_into_a_local_folder(
    s3_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model, other = Tied(), Tied()
    for written in (model, small_gpt()):
        ModelFiles(written).write(f"{s3_root}/out")
    assert {"config.json", parts.WEIGHTS} <= set(io.listdir(f"{s3_root}/out"))
    ModelFiles(model).write(f"{s3_root}/mine")
    load_model(other, f"{s3_root}/mine")
    assert equal(model, other)
    assert os.listdir() == []
