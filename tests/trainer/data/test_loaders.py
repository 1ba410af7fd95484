import random
from functools import partial

import numpy as np
import pytest
import torch
from accelerate.data_loader import prepare_data_loader, skip_first_batches
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    WeightedRandomSampler,
    get_worker_info,
)
from torch.utils.data.distributed import DistributedSampler
from transformers.trainer_utils import seed_worker

from xdpx.trainer.data.adopting import adopt
from xdpx.trainer.data.loaders import eval_loader, own_rows, train_loader
from xdpx.trainer.data.options import LoaderOptions
from xdpx.trainer.data.samplers import EpochSampler, LengthGrouped


def noisy(features):
    """A collator that draws from all three generators, as one that masks tokens does."""
    values = torch.stack([row["value"] for row in features])
    return {"value": values, "noise": torch.rand(()) + random.random() + np.random.rand()}


def ours(dataset, ranks, *, sampler=None, rank=0, size=1, collator=noisy, **options):
    options = LoaderOptions(**({"batch_size": 4} | options))
    if sampler is None and not isinstance(dataset, IterableDataset):
        sampler = EpochSampler(dataset, seed=7)
    return train_loader(dataset, collator=collator, sampler=sampler, options=options, world=ranks(rank, size))


def original(dataset, *, rank=0, size=1, num_workers=0):
    loader = DataLoader(
        dataset, batch_size=4, sampler=RandomSampler(dataset), collate_fn=noisy, num_workers=num_workers,
        worker_init_fn=partial(seed_worker, num_workers=num_workers, rank=rank),
    )  # fmt: skip
    return prepare_data_loader(
        loader, torch.device("cpu"), size, rank, put_on_device=True, use_seedable_sampler=True, data_seed=7,
        rng_types=["generator"],
    )  # fmt: skip


class Drawn(IterableDataset):
    """Numbers in an order drawn from a generator, or the global one."""

    def __init__(self, generator, size=9):
        self.generator, self.size = generator, size

    def __iter__(self):
        return ({"value": index} for index in torch.randperm(self.size, generator=self.generator))


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def train(loader, epochs):
    """Go through the loader as a training with dropout does; return what was seen and drawn."""
    seen = []
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        for batch in loader:
            dropout = torch.rand(()) + random.random() + np.random.rand()
            seen.append((batch["value"].tolist(), float(batch["noise"]), float(dropout)))
    return seen


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_and_random_numbers_are_those_of_the_original(numbers, ranks, size, num_workers):
    for rank in range(size):
        seed_everything(3)
        expected = train(original(numbers(23), rank=rank, size=size, num_workers=num_workers), 2)
        seed_everything(3)
        assert train(ours(numbers(23), ranks, rank=rank, size=size, num_workers=num_workers), 2) == expected


def test_epochs_go_on_by_themselves_when_nobody_counts_them(numbers, ranks):
    loader = ours(numbers(10), ranks)
    first, second = ([batch["value"].tolist() for batch in loader] for _ in range(2))
    loader.set_epoch(1)
    assert [batch["value"].tolist() for batch in loader] == second != first


def test_skipping_batches_gives_those_of_the_original(numbers, ranks):
    theirs = skip_first_batches(original(numbers(23)), 2)
    theirs.set_epoch(1)
    loader = ours(numbers(23), ranks)
    loader.set_epoch(1)
    loader.start_at(2)
    assert [batch["value"].tolist() for batch in loader] == [batch["value"].tolist() for batch in theirs]


@pytest.mark.parametrize("stop", range(1, 6))
@pytest.mark.parametrize("kind", ["by epoch", "global", "by length", "stream"])
def test_a_run_stopped_after_any_batch_goes_on_as_if_it_had_not(numbers, ranks, stop, kind):
    data = numbers(23)

    def make():
        if kind == "stream":
            return ours(Drawn(None, 23), ranks)
        samplers = {
            "by epoch": lambda: EpochSampler(data, seed=7),
            "global": lambda: RandomSampler(data),
            "by length": lambda: LengthGrouped([1 + index % 5 for index in range(23)], 4),
        }
        return ours(data, ranks, sampler=samplers[kind](), seedable=False)

    def step(batch):
        return batch["value"].tolist(), float(batch["noise"]), float(torch.rand(())) + random.random()

    seed_everything(1)
    loader = make()
    straight, kept = [], None
    for number, batch in enumerate(loader, 1):
        straight.append(step(batch))
        if number == stop:
            kept = loader.state_dict(), random.getstate(), np.random.get_state(), torch.get_rng_state()

    seed_everything(99)
    loader = make()
    state, *generators = kept
    random.setstate(generators[0])
    np.random.set_state(generators[1])
    torch.set_rng_state(generators[2])
    loader.start_at(state["batches"], state)
    resumed = [step(batch) for batch in loader]
    assert resumed == straight[stop:]


@pytest.mark.parametrize("stop", [3, 4])  # at the end of the first epoch, and within the second
@pytest.mark.parametrize("kind", ["sampler", "batch sampler", "users loader", "stream"])
def test_generators_of_samplers_and_loaders_go_on_where_they_stood(numbers, ranks, kind, stop):
    def make():
        data, own = numbers(9), torch.Generator().manual_seed(3)
        weighted = WeightedRandomSampler([1.0] * 9, 9, generator=own)
        return {
            "sampler": lambda: ours(data, ranks, sampler=weighted),
            "batch sampler": lambda: ours(data, ranks, sampler=BatchSampler(weighted, 4, drop_last=False)),
            "users loader": lambda: adopt(DataLoader(data, batch_size=4, shuffle=True, generator=own), ranks()),
            "stream": lambda: ours(Drawn(own), ranks),
        }[kind]()

    loader, straight, kept = make(), [], None
    for epoch in range(2):
        loader.set_epoch(epoch)
        for batch in loader:
            straight.append(batch["value"].tolist())
            kept = loader.state_dict() if len(straight) == stop else kept
    assert straight[:3] != straight[3:]
    loader = make()
    loader.set_epoch(1)
    loader.start_at(stop % 3, kept)
    assert [batch["value"].tolist() for batch in loader] == straight[stop:]


def test_workers_that_persist_start_again_without_a_number_from_the_generator_of_training(numbers, ranks):
    def after_the_second_epoch(loader):
        loader.set_epoch(1)
        return [batch["value"].tolist() for batch in loader], float(torch.rand(()))

    make = partial(ours, numbers(4), ranks, num_workers=1, persistent_workers=True)
    seed_everything(1)
    loader = make()
    kept = [loader.state_dict() for _ in loader][-1]
    drawn = torch.get_rng_state()
    straight = after_the_second_epoch(loader)
    loader = make()
    loader.start_at(0, kept)
    torch.set_rng_state(drawn)
    assert after_the_second_epoch(loader) == straight


def test_the_state_loads_without_trust(numbers, ranks, tmp_path):
    loader = ours(numbers(9), ranks, sampler=RandomSampler(numbers(9)), seedable=False)
    next(iter(loader))
    torch.save(loader.state_dict(), tmp_path / "data.pt")
    state = torch.load(tmp_path / "data.pt", weights_only=True)
    assert (state["epoch"], state["batches"], state["samples"], state["ended"]) == (0, 1, 4, False)


def test_the_state_says_when_an_epoch_has_ended(numbers, ranks):
    loader = ours(numbers(8), ranks)
    endings = [loader.state_dict()["ended"] for _ in loader]
    assert endings == [False, True]


def test_a_loader_is_a_loader_of_torchs(numbers, ranks):
    loader = ours(numbers(9), ranks)
    assert isinstance(loader, DataLoader)
    assert (len(loader), loader.total_batch_size, loader.total_dataset_length) == (3, 4, 9)
    assert isinstance(loader.batch_sampler.sampler, RandomSampler)


def test_workers_are_seeded_apart(numbers, ranks):
    loader = ours(numbers(8), ranks, num_workers=2)
    noise = [float(batch["noise"]) for batch in loader]
    assert len(set(noise)) == len(noise)


def test_a_batch_sampler_of_the_users_keeps_its_batches(numbers, ranks):
    sampler = BatchSampler(SequentialSampler(range(6)), 3, drop_last=False)
    batches = [batch["value"].tolist() for batch in ours(numbers(6), ranks, sampler=sampler)]
    assert batches == [[0, 1, 2], [3, 4, 5]]


def test_a_plain_random_sampler_becomes_one_of_seed_and_epoch(numbers, ranks):
    torch.manual_seed(5)
    loader = ours(numbers(6), ranks, sampler=RandomSampler(numbers(6)))
    assert [batch["value"].tolist() for batch in loader] == [
        batch["value"].tolist() for batch in ours(numbers(6), ranks, sampler=EpochSampler(numbers(6), seed=5))
    ]


def test_a_sampler_that_gives_each_process_its_share_is_divided_once(numbers, ranks):
    data, seen = numbers(16), []
    for rank in range(2):
        sampler = DistributedSampler(data, num_replicas=2, rank=rank, seed=3)
        loader = ours(data, ranks, sampler=sampler, rank=rank, size=2, batch_size=2)
        orders = [[value for batch in loader for value in batch["value"].tolist()] for _ in range(2)]
        assert orders[0] != orders[1]
        seen += orders[0]
    assert sorted(seen) == list(range(16))


class ByWorker(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        return ({"value": torch.tensor(index)} for index in range(worker.id, 8, worker.num_workers))


@pytest.mark.parametrize("divided", [False, True])
def test_a_stream_that_each_worker_reads_whole_is_told_of(stream, ranks, capsys, divided):
    data = ByWorker() if divided else stream(8)
    loader = ours(data, ranks, num_workers=2, collator=None)
    values = [value for batch in loader for value in batch["value"].tolist()]
    told = "two of 2 workers read from the stream are the same" in capsys.readouterr().err
    assert (sorted(values) == list(range(8)), told) == ((True, False) if divided else (False, True))


def test_batches_to_be_split_must_divide(numbers, ranks):
    with pytest.raises(ValueError, match="split_batches: a batch of 3 samples cannot be divided by 2 processes"):
        ours(numbers(6), ranks, size=2, batch_size=3, split_batches=True)


def gathered(loaders):
    """Return what the ranks give of each round, without rows that only fill up the last one."""
    return [
        value
        for batches in zip(*loaders, strict=True)
        for loader, batch in zip(loaders, batches, strict=True)
        for value in batch["value"][: own_rows(loader, len(batch["value"]))].tolist()
    ]


@pytest.mark.parametrize("samples", [1, 6, 8, 9, 11, 12, 13, 14, 15, 18])
@pytest.mark.parametrize("make", ["eval", "train", "eval stream", "train stream", "sized stream"])
def test_rows_that_only_fill_up_the_last_round_are_known(numbers, stream, ranks, samples, make):
    class Sized(stream):
        def __len__(self):
            return self.size

    data = Sized(samples) if "sized" in make else (stream if "stream" in make else numbers)(samples)
    maker = train_loader if "train" in make else eval_loader
    loaders = [
        maker(data, collator=None, sampler=None, options=LoaderOptions(batch_size=2), world=ranks(rank, 3))
        for rank in range(3)
    ]
    assert gathered(loaders) == list(range(samples))


def test_one_process_has_nothing_to_fill_up(numbers, ranks):
    loader = eval_loader(numbers(3), collator=None, sampler=None, options=LoaderOptions(2), world=ranks())
    assert [own_rows(loader, len(batch["value"])) for batch in loader] == [2, 1]
    assert own_rows([1, 2], 5) == 5


def test_one_process_takes_a_stream_as_it_is(stream, ranks):
    loader = ours(stream(5), ranks, batch_size=2)
    assert [batch["value"].tolist() for batch in loader] == [[0, 1], [2, 3], [4]]
    with pytest.raises(TypeError):
        len(loader)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_stream_is_entered_at_any_batch(stream, ranks, size, num_workers):
    make = partial(ours, stream(17), ranks, size=size, batch_size=2, num_workers=num_workers)
    everything = [batch["value"].tolist() for batch in make()]
    loader = make()
    loader.start_at(2)
    assert [batch["value"].tolist() for batch in loader] == everything[2:]
    assert [batch["value"].tolist() for batch in loader] == everything, "only the next time"


def test_a_stream_that_can_say_where_it_stands_is_not_read_again(stream, ranks):
    class Stateful(type(stream(0))):
        at = read = 0

        def state_dict(self):
            return {"at": self.at}

        def load_state_dict(self, state):
            self.at = state["at"]

        def __iter__(self):
            for index in range(self.at, self.size):
                self.at, self.read = index + 1, self.read + 1
                yield {"value": torch.tensor(index)}
            self.at = 0

    loader = ours(Stateful(11), ranks, batch_size=2)
    batches = iter(loader)
    taken = [next(batches)["value"].tolist() for _ in range(3)]
    state = loader.state_dict()
    data = Stateful(11)
    loader = ours(data, ranks, batch_size=2)
    loader.start_at(3, state)
    rest = [batch["value"].tolist() for batch in loader]
    assert sum(taken + rest, []) == list(range(11))
    assert data.read == 5


def test_batches_go_to_the_device(numbers, ranks):
    world = ranks(device=torch.device("meta"))
    loader = train_loader(
        numbers(4), collator=None, sampler=SequentialSampler(range(4)), options=LoaderOptions(2), world=world
    )
    assert next(iter(loader))["value"].device.type == "meta"


def test_an_iteration_beside_the_training_changes_neither_its_place_nor_its_order(numbers, ranks):
    loader = ours(numbers(9), ranks, sampler=RandomSampler(numbers(9)), seedable=False)
    training = loader.trained_on()
    next(training)
    before = loader.state_dict()
    assert len(list(loader)) == len(list(loader.aside())) == 3
    after = loader.state_dict()
    assert [after[name] for name in ("epoch", "batches", "ended")] == [
        before[name] for name in ("epoch", "batches", "ended")
    ]
    assert torch.equal(after["order"]["randomness"]["torch"], before["order"]["randomness"]["torch"])
    assert len(list(training)) == 2
