import random

import pytest
from transformers.trainer_pt_utils import BatchRebalanceSampler

from xdpx.trainer.data.rebalance import BatchRebalance, cost


def make_lengths(seed, size):
    generator = random.Random(seed)
    return [generator.choice([generator.randint(1, 40), generator.randint(200, 3000)]) for _ in range(size)]


@pytest.mark.parametrize(("num_processes", "accumulation"), [(1, 1), (1, 4), (2, 1), (2, 2), (3, 4)])
@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("size", [5, 61, 96])
def test_the_batches_are_those_of_the_original(num_processes, accumulation, drop_last, size):
    lengths = make_lengths(size + num_processes, size)
    per_update = 4 * num_processes * accumulation
    for rank in range(num_processes):
        theirs = BatchRebalanceSampler(lengths, per_update, num_processes, accumulation, rank=rank, drop_last=drop_last)
        ours = BatchRebalance(
            lengths, samples_per_update=per_update, num_processes=num_processes, accumulation=accumulation, rank=rank,
            drop_last=drop_last,
        )  # fmt: skip
        for epoch in range(2):
            theirs.set_epoch(epoch)
            ours.set_epoch(epoch)
            assert list(ours) == list(theirs)
            assert len(ours) == len(theirs)


@pytest.mark.parametrize("seed", range(30))
def test_few_large_samples_are_balanced_as_in_the_original(seed):
    generator = random.Random(seed)
    num_processes, accumulation = generator.choice([2, 3, 4, 8]), generator.choice([1, 2, 3, 8])
    per_update = num_processes * accumulation * generator.choice([1, 2, 5])
    lengths = make_lengths(seed, per_update * 3)
    theirs = BatchRebalanceSampler(lengths, per_update, num_processes, accumulation, rank=1)
    ours = BatchRebalance(
        lengths, samples_per_update=per_update, num_processes=num_processes, accumulation=accumulation, rank=1
    )
    assert list(ours) == list(theirs)


def test_every_sample_is_in_one_batch_of_one_rank():
    lengths = make_lengths(0, 48)
    samplers = [
        BatchRebalance(lengths, samples_per_update=16, num_processes=2, accumulation=2, rank=rank) for rank in range(2)
    ]
    assert sorted(index for sampler in samplers for batch in sampler for index in batch) == list(range(48))


def test_costs_of_the_ranks_are_closer_than_with_batches_of_equal_size():
    lengths = [1000] * 2 + [10] * 14

    def largest_cost(batches):
        return max(cost(len(batch), max(lengths[index] for index in batch)) for batch in batches)

    ours = [next(iter(BatchRebalance(lengths, samples_per_update=16, num_processes=2, rank=rank))) for rank in range(2)]
    assert largest_cost(ours) < largest_cost([range(8), range(8, 16)])


def test_it_starts_at_any_batch():
    sampler = BatchRebalance(make_lengths(1, 40), samples_per_update=8, accumulation=2)
    everything = list(sampler)
    sampler.start_at(3)
    assert list(sampler) == everything[3:]
    assert list(sampler) == everything, "only the next time"


def test_too_few_samples_per_update_are_refused():
    with pytest.raises(ValueError, match="3 samples per update are too few for 2 batches on each of 2"):
        BatchRebalance([1] * 9, samples_per_update=3, num_processes=2, accumulation=2)
