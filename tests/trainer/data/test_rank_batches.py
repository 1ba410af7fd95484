import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

from xdpx.trainer.data.rank_batches import Agreed, RankBatches, RankBatchLists
from xdpx.trainer.data.samplers import EpochSampler, LengthGrouped


def theirs(sampler, *, batch_size, drop_last, size, even, split=False):
    whole = BatchSampler(sampler, batch_size, drop_last)
    if size == 1:
        return [list(whole)]
    return [list(BatchSamplerShard(whole, size, rank, split_batches=split, even_batches=even)) for rank in range(size)]


def ours(sampler, *, batch_size, drop_last, size, even):
    return [
        RankBatches(sampler, batch_size, drop_last=drop_last, rank=rank, size=size, fill="all" if even else "none")
        for rank in range(size)
    ]


@pytest.mark.parametrize("samples", [1, 3, 8, 9, 11, 12, 23, 24, 25])
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("even", [True, False])
def test_the_batches_of_the_ranks_are_those_of_the_original(samples, size, drop_last, even):
    options = {"batch_size": 4, "drop_last": drop_last, "size": size, "even": even}
    expected = theirs(SequentialSampler(range(samples)), **options)
    for sampler in (SequentialSampler(range(samples)), EpochSampler(range(samples), seed=3)):
        batches = ours(sampler, **options)
        order = list(EpochSampler(range(samples), seed=3)) if isinstance(sampler, EpochSampler) else range(samples)
        assert [[[order[index] for index in batch] for batch in rank] for rank in expected] == [
            list(each) for each in batches
        ]
        assert [len(rank) for rank in expected] == [len(each) for each in batches]


@pytest.mark.parametrize("samples", [3, 8, 9, 11])
@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("even", [True, False])
def test_splitting_batches_gives_the_pieces_of_the_original(samples, drop_last, even):
    sampler = SequentialSampler(range(samples))
    expected = theirs(sampler, batch_size=4, drop_last=drop_last, size=2, even=even, split=True)
    batches = ours(sampler, batch_size=2, drop_last=drop_last, size=2, even=even)
    assert [list(each) for each in batches] == expected


@pytest.mark.parametrize("samples", range(1, 14))
def test_the_least_filling_repeats_a_sample_only_for_a_rank_that_would_have_nothing(samples):
    ranks = [RankBatches(SequentialSampler(range(samples)), 2, rank=rank, size=3, fill="least") for rank in range(3)]
    rounds = [list(round_) for round_ in zip(*ranks, strict=True)]
    assert all(len(rank) == len(rounds) for rank in ranks)
    idle = max(3 - -(-(samples % 6) // 2), 0) if samples % 6 else 0
    given = [index for round_ in rounds for batch in round_ for index in batch]
    assert given == [*range(samples), *[0] * idle]


@pytest.mark.parametrize("make", [lambda: SequentialSampler(range(50)), lambda: EpochSampler(range(50), seed=1)])
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("start", [0, 1, 5, 12, 40])
def test_an_epoch_is_entered_at_any_batch(make, size, start):
    for batches in ours(make(), batch_size=4, drop_last=False, size=size, even=True):
        everything = list(batches)
        batches.start_at(start)
        assert list(batches) == everything[start:]


@pytest.mark.parametrize("sampler", [RandomSampler(range(40)), LengthGrouped(list(range(40)), 2)])
def test_an_order_from_the_global_generator_is_drawn_again(sampler):
    batches = RankBatches(sampler, 4)
    torch.manual_seed(0)
    everything = list(batches)
    state = batches.state_dict()

    torch.manual_seed(99)
    before = torch.get_rng_state()
    batches.start_at(3, state)
    assert list(batches) == everything[3:]
    assert torch.equal(torch.get_rng_state(), before), "the run's own generator goes on as it was"


def test_a_huge_epoch_is_entered_without_walking_to_the_place():
    batches = RankBatches(EpochSampler(range(300_000), seed=0), 1)
    batches.start_at(299_999)
    assert len(list(batches)) == 1


def test_a_batch_has_at_least_one_sample():
    with pytest.raises(ValueError, match="batch_size: is 0"):
        RankBatches(SequentialSampler(range(3)), 0)


class Uneven:
    """A user's batch sampler with batches of 1, 2, 3, ... samples."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __iter__(self):
        return (list(range(index * 10, index * 10 + index + 1)) for index in range(self.count))


@pytest.mark.parametrize("count", [1, 2, 5, 6, 7])
@pytest.mark.parametrize("even", [True, False])
def test_batches_of_unlike_size_are_dealt_as_by_the_original(count, even):
    for rank in range(3):
        mine = RankBatchLists(Uneven(count), rank=rank, size=3, even=even)
        expected = list(BatchSamplerShard(Uneven(count), 3, rank, even_batches=even))
        if count >= 3 or even:
            assert list(mine) == expected
        assert len(mine) == len(list(mine))


@pytest.mark.parametrize("samples", [7, 8, 10, 17])
def test_a_short_last_batch_of_a_users_batch_sampler_is_filled_up_from_the_start(samples):
    whole = BatchSampler(SequentialSampler(range(samples)), 4, drop_last=False)
    for rank in range(2):
        assert list(RankBatchLists(whole, rank=rank, size=2)) == list(BatchSamplerShard(whole, 2, rank))


def test_a_users_batch_sampler_is_entered_at_any_batch():
    batches = RankBatchLists(Uneven(9), rank=1, size=2)
    everything = list(batches)
    batches.start_at(2)
    assert list(batches) == everything[2:]


def test_with_one_process_an_agreed_order_is_its_own():
    torch.manual_seed(4)
    expected = torch.randperm(9).tolist()
    torch.manual_seed(4)
    assert list(Agreed(LengthGrouped([1] * 9, 1))) == expected


def test_an_epoch_that_began_with_another_seed_ends_in_its_order_however_often_it_is_resumed():
    whole = list(RankBatches(EpochSampler(range(20), seed=1), 2))
    state, taken = None, []
    for seed, steps in ((1, 3), (2, 4), (3, 3)):
        batches = RankBatches(EpochSampler(range(20), seed=seed), 2)
        batches.start_at(len(taken), state)
        iterator = iter(batches)
        taken += [next(iterator) for _ in range(steps)]
        state = batches.state_dict()
    assert taken == whole
    batches.set_epoch(1)
    following = EpochSampler(range(20), seed=3)
    following.set_epoch(1)
    assert sum(batches, []) == list(following)
