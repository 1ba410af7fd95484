import random

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from xdpx.trainer.data.adopting import Adopted, adopt, shared_out
from xdpx.trainer.data.rank_loader import Loader


def values(loader):
    return [batch["value"].tolist() for batch in loader]


def test_a_users_loader_gives_what_it_would_have_given(numbers, ranks):
    torch.manual_seed(0)
    expected = values(DataLoader(numbers(9), batch_size=2, shuffle=True))
    after = torch.rand(())
    torch.manual_seed(0)
    assert values(adopt(DataLoader(numbers(9), batch_size=2, shuffle=True), ranks())) == expected
    assert torch.rand(()) == after


def test_what_one_asks_of_a_users_loader_it_answers_itself(numbers, ranks):
    loader = adopt(DataLoader(numbers(9), batch_size=2), ranks())
    assert (len(loader), loader.batch_size, len(loader.dataset)) == (5, 2, 9)


def test_our_own_loaders_stay_what_they_are(numbers, ranks):
    loader = shared_out(DataLoader(numbers(9), batch_size=2), ranks())
    assert adopt(loader, ranks()) is loader
    assert shared_out(loader, ranks()) is loader
    adopted = adopt([1, 2], ranks())
    assert adopt(adopted, ranks()) is adopted


@pytest.mark.parametrize("stop", [1, 3])
@pytest.mark.parametrize("kind", ["shuffled", "batch sampler", "workers", "any iterable"])
def test_a_users_loader_stopped_after_any_batch_goes_on_as_if_it_had_not(numbers, ranks, kind, stop):
    data = numbers(9)

    class Batches:
        def __iter__(self):
            return iter(DataLoader(data, batch_size=2, shuffle=True))

    make = {
        "shuffled": lambda: DataLoader(data, batch_size=2, shuffle=True),
        "batch sampler": lambda: DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 2, False)),
        "workers": lambda: DataLoader(data, batch_size=2, shuffle=True, num_workers=1),
        "any iterable": Batches,
    }[kind]
    torch.manual_seed(0)
    loader = adopt(make(), ranks())
    straight, kept = [], None
    for number, batch in enumerate(loader, 1):
        straight.append((batch["value"].tolist(), float(torch.rand(()))))
        if number == stop:
            kept = loader.state_dict(), torch.get_rng_state()
    torch.manual_seed(9)
    random.seed(9)
    np.random.seed(9)
    loader = adopt(make(), ranks())
    state, generator = kept
    torch.set_rng_state(generator)
    loader.start_at(state["batches"], state)
    assert [(batch["value"].tolist(), float(torch.rand(()))) for batch in loader] == straight[stop:]


def test_samplers_of_a_users_loader_hear_of_the_epoch(numbers, ranks):
    sampler = DistributedSampler(numbers(9), num_replicas=1, rank=0)
    adopt(DataLoader(numbers(9), sampler=sampler), ranks()).set_epoch(4)
    assert sampler.epoch == 4


def test_a_loader_that_every_rank_goes_through_is_announced(numbers, ranks, caplog):
    adopt(DataLoader(numbers(9)), ranks(0, 2))
    assert "each of the 2 processes sees all of the data" in caplog.text
    caplog.clear()
    adopt(DataLoader(numbers(9), sampler=DistributedSampler(numbers(9), num_replicas=2, rank=0)), ranks(0, 2))
    assert not caplog.records


def test_a_users_loader_is_shared_out_over_the_ranks(numbers, ranks):
    loaders = [shared_out(DataLoader(numbers(6), batch_size=2), ranks(rank, 2)) for rank in range(2)]
    assert [values(loader) for loader in loaders] == [[[0, 1], [4, 5]], [[2, 3], [0, 1]]]
    assert isinstance(loaders[0], Loader)


def test_a_shuffled_loader_is_shared_out_in_the_same_order_on_all_ranks(numbers, ranks):
    loaders = [
        shared_out(DataLoader(numbers(8), batch_size=2, shuffle=True), ranks(rank, 2), seed=1) for rank in range(2)
    ]
    taken = [value for loader in loaders for batch in values(loader) for value in batch]
    assert sorted(taken) == list(range(8))


def test_a_users_batch_sampler_is_shared_out_batch_by_batch(numbers, ranks):
    class Own(BatchSampler):
        pass

    loader = DataLoader(numbers(8), batch_sampler=Own(SequentialSampler(range(8)), 2, drop_last=False))
    assert values(shared_out(loader, ranks(1, 2))) == [[2, 3], [6, 7]]


def test_a_stream_is_shared_out(stream, ranks):
    assert values(shared_out(DataLoader(stream(8), batch_size=2), ranks(1, 2))) == [[2, 3], [6, 7]]


def test_the_end_of_a_users_loader_is_known(ranks):
    loader = Adopted([1, 2])
    assert [loader.end_of_dataloader for _ in loader] == [False, True]
    endless = Adopted(iter([1, 2]))
    assert [endless.end_of_dataloader for _ in endless] == [False, False]
    assert endless.end_of_dataloader


def test_samples_that_are_batches_already_are_taken_by_one_process_alone(ranks):
    loader = DataLoader([{"value": torch.ones(2)}] * 3, batch_size=None)
    assert len(values(shared_out(loader, ranks()))) == 3
    with pytest.raises(ValueError, match="its samples are batches already, which cannot be divided among 2"):
        shared_out(loader, ranks(0, 2))


@pytest.mark.parametrize("own", [False, True])
def test_batches_that_a_loader_was_given_stay_as_they_are(numbers, ranks, own):
    class Own:
        """Lists of indices, of no class of torch."""

        def __len__(self):
            return 2

        def __iter__(self):
            return iter([[3, 1, 2], [0, 4]])

    batches = Own() if own else BatchSampler([3, 1, 2, 0, 4], 3, drop_last=False)
    loader = shared_out(DataLoader(numbers(5), batch_sampler=batches), ranks())
    assert (values(loader), len(loader)) == ([[3, 1, 2], [0, 4]], 2)
