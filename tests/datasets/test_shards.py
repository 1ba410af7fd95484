from __future__ import annotations

from pathlib import Path
from threading import Event, Timer
from typing import Any

import pytest

from xdpx.config.faults import ConfigError
from xdpx.datasets.shards import Meta, ShardChoice, shard_of, wait_for

META = Meta({"dev": 9, "train1": 9, "train0": 9, "train10": 9}, arriving=("train2", "test"))


@pytest.mark.parametrize(
    ("subset", "left_out", "shards"),
    [
        ("train*", None, ["train1", "train0", "train10", "train2"]),
        ("train?", None, ["train1", "train0", "train2"]),
        ("train[01]", "train0", ["train1"]),
        (["train0", "train1"], None, ["train0", "train1"]),
        (["train0", "train*"], ["train10", "dev"], ["train0", "train1", "train2"]),
        ("train3", None, ["train3"]),
        ("*", ["dev"], ["train1", "train0", "train10", "train2", "test"]),
    ],
)
def test_splits_are_chosen_by_name_or_pattern(subset: Any, left_out: Any, shards: list[str]) -> None:
    assert ShardChoice(subset, left_out).shards(META) == shards


@pytest.mark.parametrize(
    ("subset", "left_out", "lazy", "key", "problem"),
    [
        ("trian0", None, False, "train_subset", "no split is called 'trian0'. Did you mean 'train0'?"),
        ("x*", None, True, "train_subset", "no split is called 'x*'. The splits are: dev, train1"),
        ("train2", None, False, "train_subset", "no split is called 'train2'. Did you mean 'train1"),
        ("dev", "dev", False, "exclude_valid_from_train", "nothing is left to train on"),
    ],
)
def test_a_choice_that_leaves_nothing_is_a_fault(
    subset: Any, left_out: Any, lazy: bool, key: str, problem: str
) -> None:
    (fault,) = ShardChoice(subset, left_out).faults(META, may_arrive=lazy)
    assert fault.key == key
    assert problem in str(fault)


def test_a_shard_that_will_come_is_no_fault_when_shards_are_read_one_by_one() -> None:
    assert ShardChoice(["train1", "train2", "train77"]).faults(META, may_arrive=True) == []


def test_the_first_pass_is_in_order_and_later_ones_are_shuffled() -> None:
    shards = [f"s{number}" for number in range(6)]
    passes = [[shard_of(1 + 6 * turn + place, shards, seed=1) for place in range(6)] for turn in range(5)]
    assert passes[0] == shards
    assert all(sorted(each) == shards for each in passes)
    assert len({tuple(each) for each in passes}) > 3
    assert [shard_of(epoch, shards, seed=2) for epoch in range(7, 13)] != passes[1]


def test_waiting_ends_when_the_shard_is_there(data_dir: Any) -> None:
    place = data_dir({"train0": 5})
    arrival = Timer(0.2, lambda: data_dir({"train0": 5, "train1": 5}))
    arrival.start()
    assert wait_for("train1", place, stop=Event(), seconds=20.0)
    arrival.join()


def test_waiting_ends_with_the_name_of_the_shard_when_time_is_up(data_dir: Any) -> None:
    with pytest.raises(TimeoutError, match=r"Shard 'train1' did not appear in .*meta.hjson within 0.2 seconds"):
        wait_for("train1", data_dir({"train0": 5}), stop=Event(), seconds=0.2)


def test_what_was_announced_by_a_build_that_died_is_told_with_what_to_do(data_dir: Any) -> None:
    place = data_dir({"train0": 5}, arriving=["train1"])
    with pytest.raises(TimeoutError, match=r"If none is running in .* run the same x-prepro command again"):
        wait_for("train1", place, stop=Event(), seconds=0.2)
    with pytest.raises(TimeoutError, match=r"Nor has an x-prepro announced it"):
        wait_for("train2", place, stop=Event(), seconds=0.2)


def test_waiting_ends_when_nobody_wants_it_any_more(data_dir: Any) -> None:
    stop = Event()
    stop.set()
    assert not wait_for("train1", data_dir({"train0": 5}), stop=stop)


def test_a_folder_without_meta_is_the_users_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data_dir: .* contains no meta.hjson .*Run x-prepro first"):
        Meta.read(str(tmp_path))
