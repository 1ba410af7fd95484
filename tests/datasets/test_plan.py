from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xdpx.datasets import plan
from xdpx.datasets.plan import Sampler, plan_epoch


def rows_of(found: Any) -> list[list[list[int]]]:
    return [[batch.tolist() for batch in found.group(index)] for index in range(found.num_groups)]


@st.composite
def settings_of_a_plan(draw: st.DrawFn) -> tuple[Any, dict[str, Any]]:
    size, by_length = draw(st.integers(0, 90)), draw(st.booleans())
    options = {
        "seed": draw(st.integers(0, 5)), "epoch": draw(st.integers(1, 5)), "by_length": by_length,
        "batch_size": draw(st.integers(2, 9)), "group_size": draw(st.integers(1, 3)),
    }  # fmt: skip
    return np.arange(size) % 13 if by_length else size, options


@given(settings_of_a_plan())
def test_each_sample_is_seen_at_most_once_and_only_an_incomplete_group_is_left_out(given_plan: Any) -> None:
    samples, options = given_plan
    found = plan_epoch(samples, **options)
    size = samples if isinstance(samples, int) else len(samples)
    seen = [row for group in rows_of(found) for batch in group for row in batch]
    assert len(seen) == len(set(seen)) == size - size % (options["batch_size"] * options["group_size"])
    assert all(0 <= row < size for row in seen)
    assert all(len(group) == options["group_size"] for group in rows_of(found))


@given(settings_of_a_plan(), st.integers(1, 4))
def test_ranks_share_every_batch_and_together_see_what_one_alone_sees(given_plan: Any, world_size: int) -> None:
    samples, options = given_plan
    options["batch_size"] = max(options["batch_size"], world_size)
    alone = rows_of(plan_epoch(samples, **options))
    shares = [rows_of(plan_epoch(samples, **options, world_size=world_size, rank=rank)) for rank in range(world_size)]
    for index, group in enumerate(alone):
        for place, batch in enumerate(group):
            together = [row for share in shares for row in share[index][place]]
            assert sorted(together) == sorted(batch)
            assert max(len(share[index][place]) for share in shares) - len(batch) // world_size <= 1


@given(settings_of_a_plan(), st.randoms())
@settings(max_examples=40)
def test_a_group_is_the_same_whatever_was_asked_for_before(given_plan: Any, random: Any) -> None:
    samples, options = given_plan
    in_order = rows_of(plan_epoch(samples, **options))
    found = plan_epoch(samples, **options)
    for index in random.sample(range(found.num_groups), found.num_groups):
        assert [batch.tolist() for batch in found.group(index)] == in_order[index]


def test_windows_join_without_gap_or_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "GROUPS_PER_WINDOW", 4)
    lengths = np.arange(230) % 17
    for by_length in (True, False):
        found = plan_epoch(lengths, seed=1, epoch=1, batch_size=5, group_size=2, by_length=by_length)
        seen = [row for group in rows_of(found) for batch in group for row in batch]
        assert len(set(seen)) == 230


def test_batches_by_length_hold_little_padding_and_groups_are_alike() -> None:
    lengths = np.random.default_rng(0).integers(3, 200, 20_000)
    waste = {}
    for by_length in (False, True):
        found = plan_epoch(lengths, seed=1, epoch=1, batch_size=32, group_size=2, by_length=by_length)
        groups = [np.concatenate(found.group(index)) for index in range(found.num_groups)]
        padded = sum(int(lengths[rows].max()) * len(rows) for rows in groups)
        waste[by_length] = 1 - sum(int(lengths[rows].sum()) for rows in groups) / padded
    assert waste[False] > 0.4
    assert waste[True] < 0.02


def test_batches_by_length_come_in_no_order_of_length() -> None:
    lengths = np.random.default_rng(0).integers(3, 200, 20_000)
    found = plan_epoch(lengths, seed=1, epoch=1, batch_size=32, by_length=True)
    means = [float(lengths[found.group(index)[0]].mean()) for index in range(found.num_groups)]
    assert abs(np.corrcoef(means[:-1], means[1:])[0, 1]) < 0.15


@pytest.mark.parametrize("by_length", [False, True])
def test_every_epoch_and_seed_has_its_own_order(by_length: bool) -> None:
    lengths = np.full(64, 7)
    orders = {
        str(rows_of(plan_epoch(lengths, seed=seed, epoch=epoch, batch_size=4, by_length=by_length)))
        for seed in (1, 2)
        for epoch in (1, 2, 3)
    }
    assert len(orders) == 6


def test_the_order_is_that_of_every_earlier_version() -> None:
    # A run that is resumed with a newer version must go on with the samples that it has not seen. Never change this.
    found = plan_epoch(np.arange(12) % 5, seed=1, epoch=1, batch_size=3, by_length=True)
    plain = plan_epoch(12, seed=1, epoch=1, batch_size=3)
    assert rows_of(found) == [[[8, 4, 9]], [[1, 11, 6]], [[2, 7, 3]], [[10, 5, 0]]]
    assert rows_of(plain) == [[[2, 3, 4]], [[1, 10, 7]], [[8, 11, 6]], [[9, 5, 0]]]


def test_a_group_that_is_not_there_is_an_index_error() -> None:
    found = plan_epoch(10, seed=1, epoch=1, batch_size=3)
    for index in (3, -1):
        with pytest.raises(IndexError, match=f"no group {index} in an epoch of 3"):
            found.group(index)


def test_ranks_and_batches_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="Rank 2 of 2 gets no share"):
        plan_epoch(10, seed=1, epoch=1, batch_size=4, world_size=2, rank=2)
    with pytest.raises(ValueError, match="no share of batches of 2 samples"):
        plan_epoch(10, seed=1, epoch=1, batch_size=2, world_size=3, rank=0)
    with pytest.raises(ValueError, match="need the length of each sample"):
        plan_epoch(10, seed=1, epoch=1, batch_size=2, by_length=True)


def test_the_default_sampler_plans_by_length_when_asked() -> None:
    lengths = np.arange(20)
    by_length = Sampler(Sampler.Parameters(batch_by_len=True)).plan(lengths, seed=1, epoch=1, batch_size=5)
    assert {tuple(np.sort(batch) // 5) for index in range(4) for batch in by_length.group(index)} == {
        (0,) * 5, (1,) * 5, (2,) * 5, (3,) * 5,
    }  # fmt: skip


def test_a_plan_for_a_billion_samples_is_made_at_once() -> None:
    found = plan_epoch(10**9, seed=1, epoch=1, batch_size=64)
    assert found.num_groups == 15_625_000
    assert len(set(found.group(15_624_999)[0].tolist())) == 64
