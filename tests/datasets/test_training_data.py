from __future__ import annotations

from itertools import islice
from threading import Timer
from typing import Any

import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.datasets.plan import Position, Sampler
from xdpx.datasets.store import StoreError
from xdpx.datasets.training_data import Ranks, TrainingData
from xdpx.utils import io


@pytest.fixture
def open_data(data_dir: Any, processor: Any) -> Any:
    """Open a data_dir with three shards, as x-train would."""

    def make(sizes: Any = None, *, by_length: bool = False, **options: Any) -> TrainingData:
        suffix = ".jsonl" if options.get("dataset_format") == "jsonl" else ".pt"
        place = data_dir(sizes or {"train0": 40, "dev": 9, "train1": 25, "train2": 33}, suffix=suffix)
        known = {key: options.pop(key) for key in list(options) if key in TrainingData.Parameters.model_fields}
        parameters = TrainingData.Parameters(**{"data_dir": place, "train_subset": "train*", "batch_size": 5} | known)
        sampler = Sampler(Sampler.Parameters(batch_by_len=by_length))
        return TrainingData(parameters, processor=processor, sampler=sampler, **{"seed": 3} | options)

    return make


BEGINNING = Position()


def test_splits_in_another_format_are_named_with_it(open_data: Any) -> None:
    parameters = open_data().parameters.model_copy(update={"dataset_format": "jsonl"})
    with pytest.raises(ConfigError, match=r"'.*train0\.jsonl', only train0\.pt\. Set dataset_format: torch") as refused:
        TrainingData(parameters, processor=open_data().processor, seed=3)
    assert {fault.key for fault in refused.value.faults} == {"dataset_format"}


def test_without_lazy_load_splits_that_are_still_arriving_are_a_fault(data_dir: Any, processor: Any) -> None:
    place = data_dir({"train0": 40}, arriving=["train1"])
    parameters = TrainingData.Parameters(data_dir=place, train_subset="train*", batch_size=5)
    with pytest.raises(ConfigError, match=r"train1: still to be made by x-prepro\. .* lazy_load: true"):
        TrainingData(parameters, processor=processor, seed=3)


def test_a_sampler_that_plans_nothing_is_refused_by_its_class(open_data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sampler, "plan_of", lambda self, source, **options: None)
    with pytest.raises(ConfigError, match=r"sampler: 'Sampler.plan_of' returns None, without num_groups"):
        seen(open_data(), 1)


def seen(data: TrainingData, count: int, start: Position = BEGINNING) -> list[Any]:
    """What training would see: position, and ids, corrupted text and targets of each batch."""
    groups = data.groups(start)
    found = [
        (position, [(b["id"].tolist(), b["net_input"]["input_ids"].tolist(), b["target"].tolist()) for b in batches])
        for position, batches in islice(groups, count)
    ]
    groups.close()
    return found


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("by_length", [False, True])
@pytest.mark.parametrize("update_freq", [1, 3])
def test_resumed_anywhere_it_goes_on_as_if_never_stopped(
    open_data: Any, lazy: bool, by_length: bool, update_freq: int
) -> None:
    def make() -> TrainingData:
        return open_data(lazy_load=lazy, by_length=by_length, update_freq=update_freq)  # type: ignore[no-any-return]

    whole = seen(make(), 24)
    for place in (0, 1, 2, 5, 7, 12, 18):
        assert seen(make(), 4, whole[place][0]) == whole[place + 1 : place + 5]


def test_an_epoch_sees_each_sample_of_all_shards_once(open_data: Any) -> None:
    data = open_data(batch_size=7)
    ids = [id_ for _, batches in seen(data, data.groups_in(1)) for ids, _, _ in batches for id_ in ids]
    assert len(ids) == len(set(ids)) == 98 - 98 % 7
    assert {id_ >> 40 for id_ in ids} == {0, 1, 2}


def test_under_lazy_load_an_epoch_is_one_shard_in_the_order_of_the_meta(open_data: Any) -> None:
    data = open_data(lazy_load=True)
    groups = seen(data, data.total_groups(6))
    shards = {(position.epoch, ids[0] >> 40) for position, ((ids, _, _),) in groups}
    assert {pair for pair in shards if pair[0] <= 3} == {(1, 0), (2, 1), (3, 2)}
    assert sorted(shard for epoch, shard in shards if epoch > 3) == [0, 1, 2]
    assert [data.groups_in(epoch) for epoch in (1, 2, 3)] == [8, 5, 6]


@pytest.mark.parametrize("lazy", [False, True])
def test_total_groups_is_what_the_epochs_really_give(open_data: Any, lazy: bool) -> None:
    data = open_data(lazy_load=lazy, batch_size=4)
    for epochs in (1, 2, 3, 4, 5, 8):
        total = data.total_groups(epochs)
        last, after = (position for position, _ in seen(data, total + 1)[-2:])
        assert last == Position(epochs, data.groups_in(epochs))
        assert after == Position(epochs + 1, 1)


def test_masks_of_a_sample_do_not_depend_on_how_batches_are_made(open_data: Any) -> None:
    def masks(**options: Any) -> dict[int, list[int]]:
        data = open_data(batch_size=7, **options)
        rows = [
            row for _, batches in seen(data, 14) for ids, texts, _ in batches for row in zip(ids, texts, strict=True)
        ]
        return {id_: np.trim_zeros(np.array(text)).tolist() for id_, text in rows}

    assert masks() == masks(by_length=True) == masks(pad_multiple=8)


def test_all_ranks_together_see_what_one_alone_sees(open_data: Any) -> None:
    alone = seen(open_data(batch_size=6), 10)
    shares = [seen(open_data(batch_size=6, ranks=Ranks(3, rank)), 10) for rank in range(3)]
    for index, (position, ((ids, _, _),)) in enumerate(alone):
        assert {share[index][0] for share in shares} == {position}
        assert sorted(id_ for share in shares for id_ in share[index][1][0][0]) == sorted(ids)


def test_a_group_holds_as_many_batches_as_update_freq_padded_for_mixed_precision(open_data: Any) -> None:
    ((_, batches),) = seen(open_data(update_freq=3, pad_multiple=8), 1)
    assert len(batches) == 3
    assert all(len(text) % 8 == 0 for _, texts, _ in batches for text in texts)


def test_validation_splits_can_be_left_out_for_cross_validation(open_data: Any) -> None:
    data = open_data(valid_subset="train1", exclude_valid_from_train=True)
    assert data.shards == ["train0", "train2"]
    assert data.num_samples == 73


def test_lines_of_json_train_like_the_store(open_data: Any) -> None:
    expected = seen(open_data({"train0": 30}), 5)
    assert seen(open_data({"train0": 30}, dataset_format="jsonl"), 5) == expected


def test_training_begins_before_all_shards_are_there(open_data: Any, data_dir: Any) -> None:
    data = open_data({"train0": 20}, train_subset=["train0", "train1"], lazy_load=True, seconds_to_wait=20.0)
    assert data.total_groups(2) == 8
    arrival = Timer(0.3, lambda: data_dir({"train0": 20, "train1": 15}))
    arrival.start()
    groups = seen(data, 5)
    arrival.join()
    assert groups[4][0] == Position(2, 1)
    assert groups[4][1][0][0][0] >> 40 == 1


def test_a_shard_that_never_comes_is_named_after_the_groups_before_it(open_data: Any) -> None:
    data = open_data({"train0": 20}, train_subset=["train0", "train1"], lazy_load=True, seconds_to_wait=0.2)
    groups = data.groups()
    assert len(list(islice(groups, 4))) == 4
    with pytest.raises(TimeoutError, match="Shard 'train1' did not appear"):
        next(groups)


def test_a_shard_that_was_announced_belongs_to_the_first_pass(data_dir: Any, open_data: Any) -> None:
    data = open_data({"train0": 20}, lazy_load=True)
    assert data.shards == ["train0"]
    data_dir({"train0": 20}, arriving=["train1"])
    again = TrainingData(data.parameters, processor=data.processor, seed=3)
    assert again.shards == ["train0", "train1"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_subset": "tarin0"}, "train_subset: no split is called 'tarin0'. Did you mean 'train0'"),
        ({"batch_size": 98}, "batch_size: 98 samples make an update .* but train_subset holds only 98"),
        ({"batch_size": 33, "update_freq": 3}, "batch_size: 99 samples make an update"),
        ({"batch_size": 25, "lazy_load": True}, "the smallest shard, 'train1', holds only 25"),
        ({"train_subset": "train9", "lazy_load": True}, "train_subset: none of its splits is ready"),
        ({"train_subset": "dev", "valid_subset": "dev", "exclude_valid_from_train": True}, "nothing is left"),
    ],
)
def test_data_that_cannot_be_trained_on_is_refused_before_anything_starts(
    open_data: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        open_data(**options)
    parameters = TrainingData.Parameters(
        **{"data_dir": open_data().parameters.data_dir, "train_subset": "train*", "batch_size": 5} | options
    )
    assert len(TrainingData.check(parameters)) == 1


def test_a_missing_file_or_folder_is_seen_by_the_check(open_data: Any, tmp_path: Any) -> None:
    parameters = open_data().parameters
    (tmp_path / "train1.pt").unlink()
    (fault,) = TrainingData.check(parameters)
    assert "train1.pt' does not exist" in str(fault)
    (tmp_path / "meta.hjson").unlink()
    (fault,) = TrainingData.check(parameters)
    assert "contains no meta.hjson" in str(fault)


def test_a_damaged_shard_stops_training_with_its_name(open_data: Any, tmp_path: Any) -> None:
    data = open_data(lazy_load=True)
    (tmp_path / "train1.pt").write_bytes(b"x" * (tmp_path / "train1.pt").stat().st_size)
    groups = data.groups()
    assert len(list(islice(groups, 8))) == 8
    with pytest.raises(StoreError, match=r"train1.pt differs from what was written"):
        next(groups)


def test_a_store_that_is_not_the_one_of_the_meta_is_refused(open_data: Any, write_store: Any, tmp_path: Any) -> None:
    data = open_data(lazy_load=True)
    write_store(tmp_path / "train0.pt", 41)
    with pytest.raises(StoreError, match=r"train0.pt holds 41 samples, but meta.hjson says 40"):
        next(data.groups())


def test_data_can_lie_in_an_object_store(open_data: Any, s3_root: str) -> None:
    data = open_data()
    expected = seen(data, 3)
    for name in ("meta.hjson", "train0.pt", "train1.pt", "train2.pt", "train0.manifest.json"):
        io.copy(f"{data.parameters.data_dir}/{name}", f"{s3_root}/data/{name}")
    there = data.parameters.model_copy(update={"data_dir": f"{s3_root}/data"})
    assert seen(TrainingData(there, processor=data.processor, seed=3), 3) == expected


def test_no_thread_is_left_behind(open_data: Any, reading_threads: Any) -> None:
    data = open_data()
    for _ in range(3):
        seen(data, 2)
    assert not reading_threads()


def test_a_position_beyond_an_epoch_begins_the_next_one(open_data: Any) -> None:
    data = open_data()
    end = Position(1, data.groups_in(1))
    assert seen(data, 1, end)[0][0] == Position(2, 1)
    assert seen(data, 2, end) == seen(data, 2, Position(2, 0))
