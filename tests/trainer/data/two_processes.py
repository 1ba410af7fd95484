"""Checks on two real processes, started by `test_two_processes.py`: each `check_...` writes its outcome to a file."""

import sys
import traceback
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from datasets import Dataset as Rows
from torch.utils.data import (
    BatchSampler,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
)

from tests.processes import fork_ranks
from xdpx.engines.pytorch import collectives
from xdpx.engines.pytorch.precision import Precision
from xdpx.engines.pytorch.world import World as Real
from xdpx.engines.pytorch.world import leave
from xdpx.reports.windows import Window
from xdpx.trainer.accelerator import Accelerator
from xdpx.trainer.arguments import TrainingArguments
from xdpx.trainer.data import first_rows
from xdpx.trainer.data.agreement import StreamOrders, refuse_unlike_loaders, refuse_unlike_training
from xdpx.trainer.data.dispatching import Dispatcher
from xdpx.trainer.data.loaders import eval_loader, own_rows, train_loader
from xdpx.trainer.data.options import LoaderOptions
from xdpx.trainer.data.plan import TrainingPlan
from xdpx.trainer.data.samplers import EpochSampler, LengthGrouped
from xdpx.trainer.loss.windows import READ, over_ranks


@dataclass(frozen=True)
class World:
    rank: int
    size: int = 2
    device: torch.device = torch.device("cpu")


class Numbers(Dataset):
    def __init__(self, size):
        self.size = size
        self.read = []

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        self.read.append(index)
        return {"value": torch.tensor(index), "noise": torch.rand(())}


class Unsteady(IterableDataset):
    """A stream whose order differs each time."""

    def __init__(self, size):
        self.size = size

    def __iter__(self):
        return ({"value": index} for index in torch.randperm(self.size))


def here():
    return World(dist.get_rank())


def values(loader):
    return [batch["value"].tolist() for batch in loader]


def of_both(loader):
    """Return the samples of both processes, by round."""
    return [left + right for left, right in zip(*collectives.gather_objects(values(loader)), strict=True)]


def make(data, sampler=None, make_loader=train_loader, **options):
    options = LoaderOptions(**({"batch_size": 2} | options))
    return make_loader(data, collator=None, sampler=sampler, options=options, world=here())


def check_an_order_from_generators_that_differ_is_agreed_on():
    torch.manual_seed(dist.get_rank())
    data = Numbers(8)
    for sampler in (RandomSampler(data), SubsetRandomSampler(range(8)), LengthGrouped(list(range(8)), 2)):
        for _ in range(2):
            assert sorted(sum(of_both(make(data, sampler, seedable=False)), [])) == list(range(8))


def check_dealt_batches_are_shared_evenly_in_the_last_round():
    for samples, rounds in (3, [[0, 1, 2, 0]]), (5, [[0, 1, 2, 3], [4, 0]]), (8, [[0, 1, 2, 3], [4, 5, 6, 7]]):
        loader = make(Numbers(samples), dispatch_batches=True)
        assert isinstance(loader, Dispatcher)
        assert len(loader) == len(rounds)
        assert of_both(loader) == rounds


def check_dealt_batches_of_a_batch_sampler_are_those_each_would_have_read():
    for samples in (3, 8, 9):
        sampler = BatchSampler(SequentialSampler(range(samples)), 2, drop_last=False)
        expected = values(make(Numbers(samples), sampler))
        assert values(make(Numbers(samples), sampler, dispatch_batches=True)) == expected


def check_a_stream_is_filled_up_as_by_the_original_whoever_reads():
    for dispatch, last in (None, [4, 0]), (True, [4, 0]), (False, [4, 0, 1, 2]):
        stream = Rows.from_dict({"value": list(range(5))}).to_iterable_dataset()
        assert of_both(make(stream, dispatch_batches=dispatch)) == [[0, 1, 2, 3], last]


def check_only_the_first_process_reads_what_is_dealt():
    data = Numbers(8)
    values(make(data, EpochSampler(data, seed=1), dispatch_batches=True))
    assert len(data.read) == (8 if dist.get_rank() == 0 else 0)


def check_all_processes_draw_the_same_for_themselves_while_batches_are_dealt():
    torch.manual_seed(5)
    values(make(Steady(8), dispatch_batches=True))
    left, right = collectives.gather_objects(float(torch.rand(())))
    assert left == right


def check_shards_of_unequal_size_are_scored_in_as_many_batches_by_all():
    stream = Rows.from_dict({"value": list(range(9))}).to_iterable_dataset(num_shards=2)
    batches = values(make(stream, make_loader=eval_loader, dispatch_batches=False))
    left, right = collectives.gather_objects(batches)
    assert len(left) == len(right)
    assert {*sum(left + right, [])} == {*range(9)}


def check_processes_with_unlike_data_or_arguments_are_refused_together():
    mine = 8 + 2 * dist.get_rank()
    with pytest.raises(ValueError, match="process 0 has samples 8; process 1 has samples 10"):
        refuse_unlike_loaders(make(Numbers(mine), make_loader=eval_loader))
    plan = TrainingPlan(1, 2, mine, mine, 4, 2, 2)
    with pytest.raises(ValueError, match="process 0 has samples 8; process 1 has samples 10. Give every process"):
        refuse_unlike_training(plan, make(Numbers(8)), TrainingArguments(use_cpu=True))
    refuse_unlike_training(plan, [], TrainingArguments(use_cpu=True))  # each process may read a part by itself
    mixed = make(Numbers(8)) if dist.get_rank() else []
    with pytest.raises(ValueError, match="has samples None, steps per epoch None; process 1 has samples 10, steps"):
        refuse_unlike_training(plan, mixed, TrainingArguments(use_cpu=True))
    with pytest.raises(ValueError, match="process 0 has learning_rate 8; process 1 has learning_rate 10"):
        refuse_unlike_training(plan, [], TrainingArguments(use_cpu=True, learning_rate=mine))
    plan = TrainingPlan(1, 2, 8, 8, 4, 2, mine)
    with pytest.raises(ValueError, match="process 0 has steps 8; process 1 has steps 10. With even_batches false"):
        refuse_unlike_training(plan, make(Numbers(6), even_batches=False), TrainingArguments(use_cpu=True))
    uneven, args = make(Numbers(6), even_batches=False), TrainingArguments(use_cpu=True)
    plan = TrainingPlan(1, mine, 8, 8, 4, 2, 8)  # max_steps is given, and the epochs differ
    with pytest.raises(ValueError, match="has steps per epoch 8; process 1 has steps per epoch 10. With even_batches"):
        refuse_unlike_training(plan, uneven, args)
    plan = TrainingPlan(1, 2, 8, 8, 4, mine, 8)  # the last update of one has a micro-batch less
    refuse_unlike_training(plan, uneven, args)
    with pytest.raises(ValueError, match="has batches per epoch 8; process 1 has batches per epoch 10. With even_ba"):
        refuse_unlike_training(plan, uneven, args, sharded=True)
    plan = TrainingPlan(1, 2, 8, 8, 4, 2, mine)
    with pytest.raises(ValueError, match="process 0 has steps 8; process 1 has steps 10. Give every process"):
        refuse_unlike_training(plan, make(Numbers(6)), TrainingArguments(use_cpu=True))


def check_streams_that_processes_read_in_other_orders_are_told_and_an_empty_one_is_refused():
    rank = dist.get_rank()

    def told(data, **options):
        orders, loader, texts = StreamOrders("train_dataset"), make(data, **options), []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(first_rows.log, "warning", lambda text, **_: texts.append(text))
            [*orders.noted(loader, iter(loader))]
        return [len(found) for found in collectives.gather_objects(texts)], orders.take()

    torch.manual_seed(rank)
    for workers in (0, 1):
        assert told(Unsteady(24), num_workers=workers)[0] == [1, 0]
        assert told(Stream(24), num_workers=workers)[0] == [0, 0]
    assert told(Unsteady(24), dispatch_batches=True) == ([0, 0], 0)
    rows = Rows.from_dict({"value": list(range(24))}).to_iterable_dataset(num_shards=4)
    for seed, expected in ((3, 0), (3 + rank, 1)):  # those drawn without a seed may begin alike by chance
        shuffled = rows.shuffle(seed=seed, buffer_size=4)
        assert told(shuffled)[0] == told(shuffled, dispatch_batches=False)[0] == [expected, 0]
    with pytest.raises(ValueError, match="process 0 reads batches from the stream, and process 1 reads none. Give"):
        told(Stream(24 * (1 - rank)))


def check_other_rows_of_data_of_one_size_are_told():
    rank = dist.get_rank()
    for data, expected in (([1, 2, 3, 4], 0), ([3 + rank, 4 - rank], 1), (Steady(4), 0)):
        texts = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(first_rows.log, "warning", lambda text, texts=texts, **_: texts.append(text))
            refuse_unlike_loaders(make(data, make_loader=eval_loader))
        assert collectives.gather_objects(len(texts)) == [expected, 0]


def check_an_order_that_differs_in_a_later_epoch_is_told_at_the_next_log():
    orders, loader, texts = StreamOrders("train_dataset"), make(Unsteady(24)), []
    for epoch in range(2):  # the global generators differ from the second one on
        torch.manual_seed(epoch * dist.get_rank())
        loader.set_epoch(epoch)
        [*orders.noted(loader, iter(loader))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(first_rows.log, "warning", lambda text, **_: texts.append(text))
        over_ranks(Window(sums={READ: orders.take()}), None)
    assert collectives.gather_objects(len(texts)) == [1, 0]


class Steady(Numbers):
    def __getitem__(self, index):
        return {"value": torch.tensor(index)}


def check_an_unsteady_stream_is_dealt_out_whole_and_once():
    torch.manual_seed(dist.get_rank())
    for samples in (8, 7, 5):
        loader = make(Unsteady(samples), make_loader=eval_loader, dispatch_batches=True)
        taken = []
        for batch in loader:
            own = batch["value"][: own_rows(loader, len(batch["value"]))]
            taken += torch.cat(collectives.gather_objects(own)).tolist()
        assert sorted(taken) == list(range(samples))


def check_dealt_batches_go_on_where_they_stopped():
    for data in (Numbers(11), Stream(11)):
        torch.manual_seed(3)
        loader = make(
            data, None if isinstance(data, Stream) else RandomSampler(data), dispatch_batches=True, seedable=False
        )
        straight, state = [], None
        for number, batch in enumerate(loader, 1):
            straight.append(batch["value"].tolist())
            if number == 2:
                state = loader.state_dict()
        assert (state["batches"], state["samples"], state["ended"]) == (2, 8, False)
        torch.manual_seed(44)
        loader.set_epoch(0)
        loader.start_at(2, state)
        assert values(loader) == straight[2:]


def check_what_is_gathered_for_metrics_has_every_sample_once():
    rank, cpu = dist.get_rank(), torch.device("cpu")
    whole = SimpleNamespace(shards=False, writes_own_state=False)
    accelerator = Accelerator(Real(rank, 2, rank, 2, 0, cpu, "distributed"), whole, Precision("no", cpu), None, None)
    for samples in (1, 3, 4, 7, 9):
        for data in (Steady(samples), Stream(samples)):
            for make_loader in (train_loader, eval_loader):
                loader = make(data, SequentialSampler(range(samples)), make_loader)
                taken = [accelerator.gather_for_metrics(batch["value"]) for batch in loader]
                assert torch.cat(taken).tolist() == list(range(samples))
    for batch in make(Steady(5), SequentialSampler(range(5))):
        words = accelerator.gather_for_metrics([str(value) for value in batch["value"].tolist()])
    assert words == ["4"]


class Stream(IterableDataset):
    def __init__(self, size):
        self.size = size

    def __iter__(self):
        return ({"value": torch.tensor(index)} for index in range(self.size))


def work(folder: Path, rank: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for name in [name for name in globals() if name.startswith("check_")]:
        try:
            globals()[name]()
            text = "passed"
        except BaseException:
            text = traceback.format_exc()
        (folder / f"{name}.{rank}").write_text(text)
        dist.barrier()
    leave()


if __name__ == "__main__":
    sys.exit(any(fork_ranks(partial(work, Path(sys.argv[1])), 2, f"{sys.argv[1]}/said")))
