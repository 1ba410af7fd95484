import pytest
import torch
from datasets import Dataset
from torch.utils.data import DataLoader, IterableDataset

from xdpx.trainer.data.streams import DealtStream, RankStream, Skipping, is_stateful, resumed, shards_of


class Counted(IterableDataset):
    def __init__(self, size):
        self.size = size

    def __iter__(self):
        return iter(range(self.size))

    def __len__(self):
        return self.size


def of_ranks(size, *, samples, batch_size=2, **options):
    return [list(RankStream(Counted(samples), batch_size, rank=rank, size=size, **options)) for rank in range(size)]


def test_batches_of_a_round_go_to_the_ranks_in_turn():
    assert of_ranks(2, samples=8) == [[0, 1, 4, 5], [2, 3, 6, 7]]


def test_an_incomplete_round_is_shared_evenly_with_samples_of_the_start():
    assert of_ranks(2, samples=7) == [[0, 1, 4, 5], [2, 3, 6, 0]]
    assert of_ranks(3, samples=7) == [[0, 1, 6], [2, 3, 0], [4, 5, 1]]
    assert of_ranks(2, samples=6) == [[0, 1, 4], [2, 3, 5]]


def test_an_incomplete_round_may_be_left_unequal_but_for_a_rank_that_would_have_nothing():
    assert of_ranks(2, samples=7, fill="least") == [[0, 1, 4, 5], [2, 3, 6]]
    assert of_ranks(3, samples=8, fill="least") == [[0, 1, 6], [2, 3, 7], [4, 5, 0]]


def test_an_incomplete_round_can_be_filled_up_to_whole_batches():
    assert of_ranks(2, samples=5, fill="all") == [[0, 1, 4, 0], [2, 3, 1, 2]]
    assert of_ranks(2, samples=1, fill="all") == [[0, 0], [0, 0]]


def test_fewer_samples_than_ranks_are_repeated():
    assert of_ranks(3, samples=1) == [[0], [0], [0]]


def test_an_incomplete_round_can_be_left_out():
    assert of_ranks(2, samples=7, drop_last=True) == [[0, 1], [2, 3]]


@pytest.mark.parametrize("kind", [RankStream, DealtStream])
def test_from_a_round_on_everything_is_as_it_would_have_been(kind):
    class Shuffled(Counted):
        def __init__(self, size):
            super().__init__(size)
            self.generator = torch.Generator()

        def __iter__(self):
            return iter(torch.randperm(self.size, generator=self.generator).tolist())

    stream = kind(Shuffled(11), 2, rank=1, size=2)
    stream.set_epoch(3)
    everything = list(stream)
    per_round = 2
    assert list(stream.entered(2)) == everything[2 * per_round :]


@pytest.mark.parametrize("samples", range(1, 14))
@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("fill", ["all", "even", "least"])
def test_the_length_is_what_comes(samples, drop_last, fill):
    for rank in range(3):
        stream = RankStream(Counted(samples), 2, rank=rank, size=3, drop_last=drop_last, fill=fill)
        assert len(stream) == len(list(stream))


def test_a_stream_with_its_own_generator_shuffles_alike_on_all_ranks():
    class Shuffled(Counted):
        def __init__(self, size):
            super().__init__(size)
            self.generator = torch.Generator()

        def __iter__(self):
            return iter(torch.randperm(self.size, generator=self.generator).tolist())

    streams = [RankStream(Shuffled(8), 2, rank=rank, size=2) for rank in range(2)]
    for epoch in range(2):
        for stream in streams:
            stream.set_epoch(epoch)
        assert sorted(sum(map(list, streams), [])) == list(range(8))


def test_the_epoch_is_passed_on():
    class Epochs(Counted):
        def set_epoch(self, epoch):
            self.epoch = epoch

    source = Epochs(4)
    RankStream(source, 1, rank=0, size=2).set_epoch(5)
    assert source.epoch == 5


def test_what_was_taken_is_skipped():
    assert list(resumed(Counted(5), 3)) == [3, 4]
    assert isinstance(resumed(Counted(5), 3), Skipping)


def test_a_stream_of_datasets_is_entered_by_its_own_means():
    source = Dataset.from_dict({"x": list(range(20))}).to_iterable_dataset(num_shards=2)
    assert [row["x"] for row in resumed(source, 15)] == [15, 16, 17, 18, 19]
    assert is_stateful(source)
    rows = iter(source)
    for _ in range(12):
        next(rows)
    state = source.state_dict()
    fresh = Dataset.from_dict({"x": list(range(20))}).to_iterable_dataset(num_shards=2)
    assert [row["x"] for row in resumed(fresh, 0, state)] == list(range(12, 20))


def test_a_stream_with_a_shuffle_buffer_which_its_state_leaves_out_is_read_again():
    def shuffled():
        stream = Dataset.from_dict({"x": list(range(40))}).to_iterable_dataset(num_shards=2)
        return stream.shuffle(seed=3, buffer_size=10).map(lambda row: {"x": row["x"] + 1})

    source = shuffled()
    rows = iter(source)
    for _ in range(12):
        next(rows)
    rest = resumed(shuffled(), 12, source.state_dict())
    assert [row["x"] for row in rest] == [row["x"] for row in rows]


def test_shards_are_counted_where_there_are_any():
    source = Dataset.from_dict({"x": list(range(20))}).to_iterable_dataset(num_shards=4)
    assert shards_of(source) == 4
    assert shards_of(Counted(3)) == 1


def test_it_feeds_a_loader_of_torchs():
    batches = DataLoader(RankStream(Counted(9), 2, rank=1, size=2), batch_size=2)
    assert [batch.tolist() for batch in batches] == [[2, 3], [6, 7], [0]]
    assert len(batches) == 3
