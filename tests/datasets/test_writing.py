from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xdpx.datasets.archive import StoreError
from xdpx.datasets.store import Store
from xdpx.datasets.writing import PartWriter, assemble, read_part
from xdpx.processors.samples import Samples
from xdpx.utils import commit

SCHEMA = {"tokens": "ragged int32", "length": "int32", "weight": "float32", "kept": "bool"}
SAMPLE = st.fixed_dictionaries(
    {
        "tokens": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5),
        "length": st.integers(0, 9),
        "weight": st.floats(width=32, allow_nan=False),
        "kept": st.booleans(),
    }
)


def write_part(path: Path, samples: list[dict[str, Any]]) -> str:
    with PartWriter(str(path), SCHEMA) as part:
        for sample in samples:
            part.add(sample)
    return str(path)


@given(st.lists(SAMPLE, max_size=12), st.lists(st.integers(0, 12), max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None)
def test_a_store_is_the_same_however_its_samples_were_cut_into_parts(
    tmp_path: Path, samples: list[dict[str, Any]], cuts: list[int]
) -> None:
    borders = [0, *sorted(min(cut, len(samples)) for cut in cuts), len(samples)]
    pieces = [samples[start:end] for start, end in zip(borders[:-1], borders[1:], strict=True)]
    parts = [write_part(tmp_path / f"part{number}", piece) for number, piece in enumerate(pieces)]
    assert assemble(parts, str(tmp_path / "many.pt"), SCHEMA) == len(samples)
    assemble([write_part(tmp_path / "whole", samples)], str(tmp_path / "one.pt"), SCHEMA)
    assert (tmp_path / "many.pt").read_bytes() == (tmp_path / "one.pt").read_bytes()
    store = Store.open(str(tmp_path / "many.pt"))
    assert [store.sample(index) for index in range(len(store))] == samples


def test_samples_can_be_added_one_by_one_and_together(tmp_path: Path) -> None:
    rows = [{"tokens": [1, 2], "length": 2, "weight": 0.5, "kept": True}] * 3
    with PartWriter(str(tmp_path / "p"), SCHEMA) as part:
        part.add(rows[0])
        part.extend(Samples.from_dicts(rows[:1], SCHEMA))
        part.add(rows[2])
    found = read_part(str(tmp_path / "p"), SCHEMA)
    assert [found.sample(index) for index in range(3)] == rows


def test_the_manifest_says_what_is_in_the_store(tmp_path: Path) -> None:
    part = write_part(tmp_path / "p", [{"tokens": [1], "length": 1, "weight": 0.0, "kept": False}])
    assemble([part], str(tmp_path / "train.pt"), SCHEMA, facts={"source": "train.txt"})
    manifest = commit.read_manifest(str(tmp_path), "train")
    assert manifest is not None
    assert manifest.facts == {"source": "train.txt", "format": "xdpx-store-1", "num_samples": 1, "columns": SCHEMA}
    assert commit.problems(str(tmp_path), "train", hashes=True) == []


def test_the_part_of_a_writer_that_died_is_not_taken(tmp_path: Path) -> None:
    with pytest.raises(KeyError), PartWriter(str(tmp_path / "p"), SCHEMA) as part:
        part.add({"tokens": [1], "length": 1, "weight": 0.0})
    with pytest.raises(StoreError, match="not a complete part: its writer did not finish"):
        assemble([str(tmp_path / "p")], str(tmp_path / "train.pt"), SCHEMA)
    assert not (tmp_path / "train.pt").exists()


def test_a_part_that_lost_bytes_is_not_taken(tmp_path: Path) -> None:
    part = write_part(tmp_path / "p", [{"tokens": [1, 2], "length": 2, "weight": 0.0, "kept": False}])
    Path(f"{part}.tokens").write_bytes(b"1234")
    with pytest.raises(StoreError, match=r"p\.tokens has 4 bytes instead of 8"):
        assemble([part], str(tmp_path / "train.pt"), SCHEMA)


def test_parts_with_other_columns_are_not_mixed(tmp_path: Path) -> None:
    part = write_part(tmp_path / "p", [])
    with pytest.raises(StoreError, match="has the columns"):
        assemble([part], str(tmp_path / "train.pt"), {**SCHEMA, "target": "int64"})


def test_a_failed_write_leaves_the_store_that_was_there(tmp_path: Path) -> None:
    good = write_part(tmp_path / "p", [{"tokens": [1, 2], "length": 2, "weight": 0.0, "kept": False}])
    assemble([good], str(tmp_path / "train.pt"), SCHEMA)
    before = (tmp_path / "train.pt").read_bytes()
    bad = write_part(tmp_path / "q", [{"tokens": [1, 2], "length": 2, "weight": 0.0, "kept": False}])
    Path(f"{bad}.tokens.lengths").unlink()
    with pytest.raises(OSError):
        assemble([good, bad], str(tmp_path / "train.pt"), SCHEMA)
    assert (tmp_path / "train.pt").read_bytes() == before
    assert Store.open(str(tmp_path / "train.pt")).num_samples == 1
    assert not list(tmp_path.glob("*.tmp-*"))


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="length"), PartWriter(str(tmp_path / "p"), SCHEMA) as part:
        part.add({"tokens": [1]})


def test_lines_of_json_can_be_written_instead(tmp_path: Path) -> None:
    rows = [{"tokens": [1, 2], "length": 2, "weight": 0.5, "kept": True}]
    part = write_part(tmp_path / "p", rows)
    assert assemble([part, part], str(tmp_path / "dev.jsonl"), SCHEMA) == 2
    lines = (tmp_path / "dev.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == rows * 2


def test_numbers_too_large_for_their_column_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OverflowError), PartWriter(str(tmp_path / "p"), SCHEMA) as part:
        part.add({"tokens": [2**40], "length": 1, "weight": 0.0, "kept": False})


def test_a_long_part_is_flushed_on_the_way(tmp_path: Path) -> None:
    with PartWriter(str(tmp_path / "p"), {"x": "int64"}) as part:
        for number in range(20_000):
            part.add({"x": number})
        assert (tmp_path / "p.x").stat().st_size + 64_000 > 8 * 16_384
    assert (read_part(str(tmp_path / "p"), {"x": "int64"}).numbers("x") == np.arange(20_000)).all()
