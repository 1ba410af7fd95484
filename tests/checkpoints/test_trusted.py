import pickle
from pathlib import Path

import pytest
import torch

from xdpx.checkpoints.checkpointer import Checkpointer
from xdpx.checkpoints.trusted import DamagedFile, load_tensors, load_weights, save_tensors


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (exec, ("open('canary', 'w').close()",))


@pytest.mark.parametrize("write", [
    lambda path: torch.save({"a": Evil()}, path),
    lambda path: path.write_bytes(pickle.dumps(Evil(), protocol=2)),
])  # fmt: skip
def test_nothing_in_a_file_is_ever_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: object) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "weights.pt")  # type: ignore[operator]
    with pytest.raises(DamagedFile, match=r"weights\.pt"):
        load_tensors("weights.pt")
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"not a tensor file at all", bytes(1000)])
def test_what_is_no_tensor_file_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "w.pt").write_bytes(data)
    with pytest.raises(DamagedFile, match=r"w\.pt"):
        load_tensors(str(tmp_path / "w.pt"))


def test_a_file_cut_anywhere_is_named_and_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    with path.open("wb") as target:
        save_tensors({"a": torch.arange(1000.0)}, target)
    whole = path.read_bytes()
    for share in (0.01, 0.3, 0.6, 0.9, 0.999):
        path.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(DamagedFile):
            load_tensors(str(path))


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no such file"):
        load_tensors(str(tmp_path / "w.pt"))


def test_weights_that_are_not_those_that_were_saved_are_refused(tmp_path: Path) -> None:
    Checkpointer(str(tmp_path)).save_weights(5, {"weight": torch.arange(1000.0)}, facts={})
    path = tmp_path / "checkpoint-5.pt"
    assert load_weights(str(path))["weight"][999] == 999
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    load_tensors(str(path))  # torch does not look
    with pytest.raises(DamagedFile, match=r"checkpoint-5\.pt: its content is not what was written"):
        load_weights(str(path))
