"""Episodes: what is in one, that it depends on its number alone, and what there is too little for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.datasets import samplers
from xdpx.datasets.episodes import EpisodeSampler
from xdpx.processors.samples import Ragged, Samples

TARGETS = np.arange(120) % 6
WAY, SHOTS, QUERIES = 3, 2, 4
SIZE = WAY * (SHOTS + QUERIES)


def source(targets: Any = TARGETS) -> Samples:
    return Samples({"length": np.ones(len(targets), np.int32), "target": targets})


def sampler(**values: Any) -> EpisodeSampler:
    known = {"n_way": WAY, "k_shot": SHOTS, "q_query": QUERIES, "train_episodes": 20, "dev_episodes": 7, **values}
    return EpisodeSampler(EpisodeSampler.Parameters(**known))


def plan(epoch: int = 1, **options: int) -> Any:
    return sampler().plan_of(source(), **{"seed": 5, "epoch": epoch, "batch_size": SIZE, "group_size": 1, **options})


def test_an_episode_holds_different_rows_of_n_classes_shot_by_shot() -> None:
    for group in range(plan().num_groups):
        rows = plan().group(group)[0].reshape(SHOTS + QUERIES, WAY)
        classes = TARGETS[rows]
        assert (classes == classes[0]).all()
        assert len(set(classes[0].tolist())) == WAY
        assert len(set(rows.ravel().tolist())) == SIZE


def test_an_episode_is_the_same_whatever_was_asked_for_before_and_another_in_each_epoch_and_place() -> None:
    first, again = plan(), plan()
    in_order = [first.group(index)[0] for index in range(20)]
    assert np.array_equal(again.group(13)[0], in_order[13])
    assert not np.array_equal(in_order[13], in_order[12])
    assert not np.array_equal(plan(epoch=2).group(13)[0], in_order[13])
    assert not np.array_equal(plan(seed=6).group(13)[0], in_order[13])


def test_an_epoch_has_as_many_episodes_as_it_is_to_have_and_all_classes_take_part() -> None:
    assert plan().num_groups == 20
    assert plan(batch_size=2 * SIZE, group_size=2).num_groups == 5
    assert sampler().epoch_size(source()) == 20 * SIZE
    seen = np.concatenate([plan().group(index)[0] for index in range(20)])
    assert set(TARGETS[seen].tolist()) == set(range(6))


def test_ranks_share_a_batch_by_whole_episodes() -> None:
    together = plan(batch_size=4 * SIZE).group(2)[0].reshape(4, SIZE)
    for rank in (0, 1):
        mine = plan(batch_size=4 * SIZE, world_size=2, rank=rank).group(2)[0].reshape(2, SIZE)
        assert np.array_equal(mine, together[rank::2])


def test_held_out_episodes_are_the_same_every_time_and_however_many_come_together() -> None:
    one = sampler().held_out(source(), batch_size=SIZE, seed=5)
    three = sampler().held_out(source(), batch_size=3 * SIZE + 1, seed=5)
    assert [len(rows) for rows in one] == [SIZE] * 7
    assert [len(rows) for rows in three] == [3 * SIZE, 3 * SIZE, SIZE]
    assert np.array_equal(np.concatenate(one), np.concatenate(three))
    assert not np.array_equal(np.concatenate(one), np.concatenate(sampler().held_out(source(), batch_size=1, seed=6)))


def test_small_classes_are_left_out_and_one_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    targets = np.concatenate([TARGETS, [6] * 5])
    kind = sampler()
    rows = np.concatenate(kind.held_out(source(targets), batch_size=SIZE, seed=5))
    kind.held_out(source(targets), batch_size=SIZE, seed=5)
    assert 6 not in targets[rows]
    assert caplog.text.count("1 classes with fewer than 6 rows are left out of all episodes") == 1


def test_too_few_classes_or_labels_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"n_way: is 3, but only 2 of 2 classes have 6 rows or more"):
        sampler().held_out(source(np.arange(40) % 2), batch_size=SIZE, seed=5)
    several = Ragged(np.zeros(120, np.int32), np.arange(121))
    with pytest.raises(ConfigError, match=r"sampler: is 'episode', but the samples have several labels each"):
        sampler().held_out(source(several), batch_size=SIZE, seed=5)


def test_batches_of_parts_of_episodes_are_refused() -> None:
    known = samplers["episode"].Parameters
    assert known(n_way=3, k_shot=2, q_query=4, batch_size=36).conflicts() == []
    ((key, problem),) = known(n_way=3, k_shot=2, q_query=4, batch_size=32).conflicts()
    assert (key, problem) == ("batch_size", "is 32, but 18 samples belong together. Use a multiple of 18.")
    assert known(n_way=3, k_shot=2, q_query=4, batch_by_len=True).conflicts()[0][0] == "batch_by_len"
    with pytest.raises(ConfigError, match=r"gives no 18 samples to each of 2 devices"):
        plan(world_size=2)
