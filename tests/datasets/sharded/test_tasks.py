"""Tasks know which they are, keep what is done, and refuse what belongs to something else by its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from xdpx.commands.prepro import Prepro
from xdpx.commands.script import main as script
from xdpx.config.faults import ConfigError
from xdpx.config.loading import resolve
from xdpx.datasets.sharded import tasks
from xdpx.datasets.sharded.parameters import Shard, shard_of
from xdpx.datasets.store import Store
from xdpx.loaders.parsers.base import Block
from xdpx.loaders.parsers.csv import CSVParser
from xdpx.utils.leases import Lease, LeaseHeld

WORDS = {"parser": "csv", "loader": "single", "tokenizer": "space", "processor": "single", "max_len": 5}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "train.txt").write_text("".join(f"w{n} x\t{n % 2}\n" for n in range(9)))
    return tmp_path


def task(folder: Path, index: int | None, **values: Any) -> None:
    known = {**WORDS, "data_source": str(folder / "raw"), "data_dir": str(folder / "data")}
    which = {} if index is None else {"num_shards": 2, "shard_index": index}
    Prepro(resolve({**known, **which, **values}, "x-prepro", source="test")).run()


@pytest.mark.parametrize(
    ("around", "asked", "found"),
    [
        ({"SLURM_ARRAY_TASK_ID": "3"}, 8, Shard(3, 8)),
        ({"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "8"}, 0, Shard(3, 8)),
        ({"JOB_COMPLETION_INDEX": "0"}, 2, Shard(0, 2)),
        ({"XDPX_TASK_INDEX": "1", "XDPX_NUM_TASKS": "4", "SLURM_ARRAY_TASK_ID": "9"}, 0, Shard(1, 4)),
        ({"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "8"}, 1, None),
    ],
)
def test_a_task_knows_which_it_is(around: Mapping[str, str], asked: int, found: Shard | None) -> None:
    assert shard_of(asked, None, around) == (found, [])


@pytest.mark.parametrize(
    ("around", "asked", "index", "told"),
    [
        ({}, 8, None, "XDPX_TASK_INDEX"),
        ({}, 0, None, "not a task of an array"),
        ({}, 8, 8, "num_shards is 8"),
        ({"SLURM_ARRAY_TASK_ID": "8"}, 8, None, "SLURM_ARRAY_TASK_ID is 8"),
    ],
)
def test_a_number_that_is_none_is_refused(around: Mapping[str, str], asked: int, index: int | None, told: str) -> None:
    shard, (fault,) = shard_of(asked, index, around)
    assert shard is None
    assert told in str(fault)


def test_an_array_that_begins_with_one_is_refused_by_all_of_its_tasks() -> None:
    around = {"SLURM_ARRAY_TASK_COUNT": "8", "SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_MAX": "8"}
    _, (fault,) = shard_of(8, None, {**around, "SLURM_ARRAY_TASK_ID": "2"})
    assert "--array=0-7" in fault.remedy


def test_another_config_is_refused_by_the_keys_that_differ(folder: Path) -> None:
    task(folder, 0)
    with pytest.raises(ConfigError, match="max_len was 5, is 6"):
        task(folder, 1, max_len=6)
    with pytest.raises(ConfigError, match="num_shards: was 2 when this was started, is now 3"):
        task(folder, 2, num_shards=3)


def test_another_number_of_workers_goes_on_with_what_was_begun(folder: Path) -> None:
    task(folder, 0, workers=2)
    with pytest.raises(ConfigError, match=r"started with: max_len was 5, is 6\."):  # not `workers`
        task(folder, 1, workers=1, max_len=6)
    task(folder, 1, workers=1)
    assert Store.open(str(folder / "data" / "train.pt")).num_samples


def test_another_raw_file_is_refused_by_its_name(folder: Path) -> None:
    task(folder, 0)
    (folder / "raw" / "train.txt").write_text("other\t1\n")
    with pytest.raises(ConfigError, match="train.txt is not the file that this was started with"):
        task(folder, 1)


def test_only_what_is_missing_is_made_and_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task(folder, 1)
    with pytest.raises(ConfigError, match="is missing: shard 0 of 2"):
        script(["gather_shards", str(folder / "data")])
    monkeypatch.setattr(tasks, "_make_piece", lambda *_: pytest.fail("it was there"))
    task(folder, 1)
    assert not (folder / "data").exists()
    (folder / "data.shards" / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"config\.json: it has 1 bytes instead of .*Name the config of x-prepro"):
        script(["gather_shards", str(folder / "data")])


def test_a_damaged_piece_is_refused_by_its_task_and_made_again_by_it(folder: Path) -> None:
    task(folder, 1)
    (piece,) = (folder / "data.shards" / "made").glob("*.blocks")
    piece.write_bytes(piece.read_bytes()[:-1] + b"?")
    with pytest.raises(ConfigError, match=r"shard 1: its piece of train: .*SHA-256 differs"):
        task(folder, 0)
    task(folder, 1)
    assert (folder / "data" / "train.pt").exists()


def test_two_tasks_of_one_number_are_kept_apart(folder: Path) -> None:
    with Lease(folder / "data.shards" / "leases" / "shard-00001"), pytest.raises(LeaseHeld):
        task(folder, 1)


def test_a_bad_line_is_named_as_in_the_file(folder: Path) -> None:
    with (folder / "raw" / "train.txt").open("a") as file:
        file.write("no label\n")
    with pytest.raises(ConfigError, match=r"train\.txt:10"):
        task(folder, 1)


def test_what_was_put_together_is_not_made_again_until_it_is_gone(folder: Path) -> None:
    for index in (0, 1):
        task(folder, index)
    written = (folder / "data" / "train.pt").stat().st_mtime_ns
    task(folder, 0)
    assert script(["gather_shards", str(folder / "data")]) == 0
    assert (folder / "data" / "train.pt").stat().st_mtime_ns == written
    for index in (0, 1):
        task(folder, index, max_len=4)
    assert (folder / "data" / "train.pt").stat().st_mtime_ns != written


@pytest.mark.parametrize(("shards", "pass_number"), [(1, 1), (1, 2), (2, 1), (2, 3)])
def test_a_raw_file_that_is_saved_while_words_are_counted_or_rows_are_made_is_refused(
    folder: Path, shards: int, pass_number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw, name, passes = folder / "raw" / "train.txt", "blocks_of" if shards > 1 else "blocks", [0]
    read = getattr(CSVParser, name)

    def read_and_save(*arguments: Any) -> Iterator[Block]:
        yield from read(*arguments)
        passes[0] += 1
        if passes[0] == pass_number:
            raw.write_text(raw.read_text().replace("x", "y") + "z\t1\n")

    monkeypatch.setattr(CSVParser, name, read_and_save)
    with pytest.raises(ConfigError, match="was changed while it was read"):
        task(folder, 0 if shards > 1 else None)
    assert not list((folder / "data.shards" / ("counts" if pass_number == 1 else "made")).glob("*.json"))
    assert not (folder / "data" / "train.pt").exists()
