from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from xdpx.datasets.archive import StoreError, StoreLayout, TensorFacts, map_archive, write_archive
from xdpx.processors.samples import DTYPES


def write(path: Path, arrays: dict[str, np.ndarray[Any, Any]], *, num_samples: int = 1) -> None:
    facts = {name: {"values": TensorFacts(array.dtype, len(array))} for name, array in arrays.items()}
    with path.open("wb") as file:
        write_archive(file, StoreLayout(num_samples, facts), [[array.tobytes()] for array in arrays.values()])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "train.pt"
    write(found, {"a": np.arange(5, dtype=np.int32), "b": np.ones(3)}, num_samples=3)
    return found


@pytest.mark.parametrize("mapped", [True, False])
def test_torch_loads_every_type_of_numbers_with_weights_only(tmp_path: Path, mapped: bool) -> None:
    arrays = {name: np.arange(7).astype(name) for name in DTYPES}
    write(tmp_path / "all.pt", {**arrays, "none": np.empty(0, np.int64)}, num_samples=7)
    loaded = torch.load(tmp_path / "all.pt", weights_only=True, mmap=mapped)
    assert (loaded["format"], loaded["num_samples"]) == ("xdpx-store-1", 7)
    for name, array in arrays.items():
        assert loaded["columns"][name]["values"].dtype == getattr(torch, name)
        assert loaded["columns"][name]["values"].tolist() == array.tolist()
    assert loaded["columns"]["none"]["values"].shape == (0,)


def test_what_is_mapped_is_what_was_written_and_cannot_be_changed(path: Path) -> None:
    layout, columns = map_archive(str(path))
    assert layout.num_samples == 3
    assert columns["a"]["values"].tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="read-only"):
        columns["a"]["values"][0] = 9


def test_the_file_is_a_sound_zip_whose_records_begin_at_round_places(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
    data = path.read_bytes()
    assert data.index(np.arange(5, dtype=np.int32).tobytes()) % 64 == 0
    assert data.index(np.ones(3).tobytes()) % 64 == 0


def test_the_same_content_gives_the_same_bytes_whatever_the_name(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "a much longer name.pt"
    write(other, {"a": np.arange(5, dtype=np.int32), "b": np.ones(3)}, num_samples=3)
    assert other.read_bytes() == path.read_bytes()


def test_a_file_cut_short_anywhere_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        with pytest.raises(StoreError, match="train.pt is (cut short|a damaged)"):
            map_archive(str(path))


def test_a_checkpoint_is_no_store(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(3)}, tmp_path / "model.pt")
    with pytest.raises(StoreError, match=r"model.pt is not a store of samples.*x-prepro; run it again"):
        map_archive(str(tmp_path / "model.pt"))


def test_a_list_of_samples_as_the_first_xdpx_wrote_is_no_store(tmp_path: Path) -> None:
    torch.save([{"id": 0, "tokens": [1, 2]}], tmp_path / "train.pt")
    with pytest.raises(StoreError, match="not a store of samples"):
        map_archive(str(tmp_path / "train.pt"))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b'"xdpx-store-1"', b'"xdpx-store-9"', "its format is 'xdpx-store-9'"),
        (b'["int32", 5]', b'["int32", 6]', "has 20 bytes instead of 24"),
        (b'["int32", 5]', b'["int32",-5]', "has 20 bytes instead of -20"),
        (b'["int32", 5]', b'["O    ", 5]', "is not a type of numbers"),
        (b'"columns"', b'"kolumns"', "columns"),
        (b'{"format"', b'["format"', "damaged"),
    ],
)
def test_an_index_that_lies_is_refused(path: Path, old: bytes, new: bytes, why: str) -> None:
    source = zipfile.ZipFile(io.BytesIO(path.read_bytes()))
    with zipfile.ZipFile(path, "w") as changed:
        for info in source.infolist():
            data = source.read(info)
            changed.writestr(info.filename, data.replace(old, new) if info.filename.endswith("json") else data)
    with pytest.raises(StoreError, match=why):
        map_archive(str(path))


def test_compressed_records_are_refused_because_they_cannot_be_mapped(path: Path) -> None:
    source = zipfile.ZipFile(io.BytesIO(path.read_bytes()))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as changed:
        for info in source.infolist():
            changed.writestr(info.filename, source.read(info))
    with pytest.raises(StoreError, match="damaged store"):
        map_archive(str(path))


def test_a_tensor_of_another_size_than_announced_is_not_written(tmp_path: Path) -> None:
    facts = {"a": {"values": TensorFacts(np.dtype(np.int32), 5)}}
    with pytest.raises(StoreError, match="Column 'a': 4 bytes of values came instead of 20"):
        write_archive(io.BytesIO(), StoreLayout(1, facts), [[b"1234"]])


def test_opening_runs_no_pickle(path: Path) -> None:
    # Were data.pkl looked at, this would fail: it is not a pickle at all.
    data = path.read_bytes()
    at = data.index(b"\x80\x02}(X")
    path.write_bytes(data[:at] + b"\xff" * 20 + data[at + 20 :])
    assert map_archive(str(path))[0].num_samples == 3
