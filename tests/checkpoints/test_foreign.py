"""Folders without manifest, as the Hugging Face Trainer leaves them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from xdpx.checkpoints import foreign
from xdpx.checkpoints.folders import check, newest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "checkpoint-5"
    made.mkdir()
    save_file({"weight": torch.arange(40.0)}, made / "model.safetensors")
    (made / "trainer_state.json").write_text(json.dumps({"global_step": 5}))
    (made / "config.json").write_text("{}")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"):
        torch.save({"some": torch.arange(40.0)}, made / name)
    return made


def test_a_whole_folder_is_valid(folder: Path) -> None:
    assert check(folder) == []
    assert newest(folder.parent) == str(folder)


@pytest.mark.parametrize(
    "name", ["model.safetensors", "trainer_state.json", "config.json", "optimizer.pt", "scheduler.pt", "rng_state.pth"]
)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.97])
def test_a_file_that_was_cut_short_is_found(folder: Path, name: str, share: float) -> None:
    path = folder / name
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    problems = check(folder)
    assert len(problems) == 1
    assert problems[0].startswith(f"{name}: ")


def test_a_flipped_bit_in_the_tensors_of_torch_is_found(folder: Path) -> None:
    path = folder / "optimizer.pt"
    data = bytearray(path.read_bytes())
    data[data.index(torch.arange(40.0).numpy().tobytes()) + 9] ^= 1
    path.write_bytes(data)
    assert "CRC" in check(folder)[0]
    assert check(folder, hashes=False) == []


def test_weights_that_are_missing_are_found(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    assert check(folder) == ["model.safetensors: it is missing."]


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "trainer_state.json"])
def test_a_folder_that_lacks_a_part_is_not_continued_from(folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert check(folder) == []
    assert name in foreign.missing_parts(str(folder))[0]
    assert newest(folder.parent) is None
    assert newest(folder.parent, resumable=False) == str(folder)


def test_a_shard_that_is_missing_is_found(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    files = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": dict(zip("ab", files, strict=True))})
    )
    assert check(folder) == [f"{files[1]}: it is missing."]


def test_a_state_without_step_is_found(folder: Path) -> None:
    for text in ("[]", "{}", '{"global_step": "five"}'):
        (folder / "trainer_state.json").write_text(text)
        assert check(folder) == ["trainer_state.json: it has no global_step."]


def test_a_folder_that_the_original_left_unfinished_at_sigterm_is_found(folder: Path) -> None:
    (folder / "checkpoint-is-incomplete.txt").write_text("")
    assert "not finished" in check(folder)[0]


def test_an_adapter_counts_as_weights(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    assert check(folder) == []
    (folder / "mine").mkdir()
    (folder / "adapter_model.safetensors").rename(folder / "mine" / "adapter_model.safetensors")
    assert check(folder) == []


def test_a_header_that_lies_is_no_whole_file(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((1 << 62).to_bytes(8, "little") + b"{}")
    assert "no complete header" in check(folder)[0]


@pytest.mark.parametrize("name", ["../../elsewhere.safetensors", "/etc/passwd", "", 3])
def test_an_index_that_leads_out_of_its_folder_is_not_followed(folder: Path, name: object) -> None:
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(ValueError, match="not a file beside it"):
        foreign.shards(str(index))
    assert check(folder) == [f"{index.name}: it lists {name!r}, which is not a file beside it."]
    index.write_text("{}")
    assert check(folder) == ["model.safetensors.index.json: it lists no shards."]


def test_files_of_others_are_their_business(folder: Path) -> None:
    for name in ("mine.bin", "table.pt", "notes.json"):
        (folder / name).write_text("whatever")
    assert check(folder) == []
