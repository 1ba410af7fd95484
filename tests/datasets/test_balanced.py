"""Epochs in which every class is trained on equally often."""

import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.datasets import samplers
from xdpx.processors.samples import Ragged, Samples

TARGETS = np.array([0] * 70 + [1] * 20 + [2] * 10)


def source(target=TARGETS):
    found = {"length": np.arange(len(TARGETS)) % 7 + 1}
    return Samples(found if target is None else {**found, "target": target})


def epoch(number=1, seed=3, batch_by_len=False, **options):
    kind = samplers["balanced"]
    chosen = kind(kind.Parameters(batch_by_len=batch_by_len))
    plan = chosen.plan_of(source(), seed=seed, epoch=number, **{"batch_size": 10, "group_size": 1, **options})
    return plan, [plan.group(index) for index in range(plan.num_groups)]


def rows_of(groups):
    return np.concatenate([batch for group in groups for batch in group])


@pytest.mark.parametrize("batch_by_len", [False, True])
def test_every_class_comes_equally_often_in_an_epoch_of_the_same_length(batch_by_len):
    rows = rows_of(epoch(batch_by_len=batch_by_len)[1])
    assert len(rows) == 100
    assert np.ptp(np.bincount(TARGETS[rows])) <= 1


def test_a_small_class_is_gone_through_evenly_and_a_large_one_without_repeats():
    seen = np.bincount(rows_of(epoch()[1]), minlength=100)
    assert set(seen[:70].tolist()) == {0, 1}
    assert set(seen[20 + 50 :][:20].tolist()) == {1, 2}
    assert set(seen[90:].tolist()) == {3, 4}


def test_another_epoch_takes_another_part_of_a_large_class():
    first, second = (set(rows_of(epoch(number)[1])[TARGETS[rows_of(epoch(number)[1])] == 0]) for number in (1, 2))
    assert first != second


def test_a_group_is_the_same_whatever_was_asked_for_before_and_is_shared_by_the_ranks():
    plan, groups = epoch()
    again = epoch()[0]
    assert np.array_equal(again.group(7)[0], groups[7][0])
    halves = [epoch(world_size=2, rank=rank)[0].group(7)[0] for rank in (0, 1)]
    assert sorted(np.concatenate(halves)) == sorted(plan.group(7)[0])


def test_with_batch_by_len_a_batch_is_of_like_lengths():
    lengths = source().lengths
    spread = [np.ptp(lengths[batch]) for group in epoch(batch_by_len=True)[1] for batch in group]
    assert np.mean(spread) < 2


@pytest.mark.parametrize("target", [None, Ragged(np.arange(200), np.arange(0, 201, 2))])
def test_samples_without_one_label_each_are_refused(target):
    kind = samplers["balanced"]
    with pytest.raises(ConfigError, match="balanced"):
        kind(kind.Parameters()).plan_of(source(target), seed=1, epoch=1, batch_size=10)
