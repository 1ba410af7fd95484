from types import SimpleNamespace

import pytest
import torch
from accelerate.data_loader import SeedableRandomSampler
from torch.utils.data import RandomSampler, SequentialSampler
from transformers.trainer_pt_utils import LengthGroupedSampler

from xdpx.trainer.data.rebalance import BatchRebalance
from xdpx.trainer.data.samplers import EpochSampler, LengthGrouped, eval_sampler, lengths_of, train_sampler


def arguments(**changes):
    defaults = {
        "train_sampling_strategy": "random",
        "length_column_name": "length",
        "train_batch_size": 4,
        "eval_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "data_seed": None,
        "seed": 42,
        "accelerator_config": None,
        "world_size": 1,
        "process_index": 0,
        "dataloader_drop_last": False,
    }
    return SimpleNamespace(**(defaults | changes))


@pytest.mark.parametrize("options", [{}, {"num_samples": 70}, {"num_samples": 7}, {"replacement": True}])
@pytest.mark.parametrize("epoch", [0, 3])
def test_the_order_of_an_epoch_is_that_of_the_original(options, epoch):
    theirs = SeedableRandomSampler(range(33), data_seed=7, generator=None, **options)
    ours = EpochSampler(range(33), seed=7, **options)
    theirs.set_epoch(epoch)
    ours.set_epoch(epoch)
    assert list(ours) == list(theirs)
    assert list(ours) == list(theirs), "the next epoch follows by itself"


def test_without_a_seed_of_the_data_the_order_is_that_of_torchs_seed():
    torch.manual_seed(11)
    assert list(EpochSampler(range(20))) == list(EpochSampler(range(20), seed=11))


def test_the_order_of_an_epoch_takes_nothing_from_the_global_generator():
    before = torch.get_rng_state()
    list(EpochSampler(range(20), seed=1))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("samples", "batch_size"), [(1, 4), (7, 4), (100, 4), (1000, 3), (513, 16)])
def test_grouping_by_length_gives_the_order_of_the_original(samples, batch_size):
    lengths = torch.randint(1, 30, (samples,), generator=torch.Generator().manual_seed(0)).tolist()
    theirs = LengthGroupedSampler(batch_size, lengths=lengths, generator=torch.Generator().manual_seed(5))
    ours = LengthGrouped(lengths, batch_size, generator=torch.Generator().manual_seed(5))
    for _ in range(2):
        assert list(ours) == list(theirs)


def test_grouping_by_length_draws_from_the_global_generator_as_the_original():
    lengths = list(range(50))
    torch.manual_seed(0)
    theirs = list(LengthGroupedSampler(2, lengths=lengths))
    after = torch.get_rng_state()
    torch.manual_seed(0)
    assert list(LengthGrouped(lengths, 2)) == theirs
    assert torch.equal(torch.get_rng_state(), after)


def test_lengths_are_counted_from_the_main_input():
    assert lengths_of([{"ids": [1, 2]}, {"ids": [1]}], input_name="ids") == [2, 1]
    assert lengths_of([{"sound": 0.5, "length": 7}], column="length") == [7]
    assert lengths_of([{"input_ids": [1, 2], "length": 7}], column="length") == [2]  # as in the original


def test_samples_without_the_main_input_cannot_be_sorted_by_length():
    with pytest.raises(ValueError, match=r"has values, with no 'input_ids' to measure.*length_column_name"):
        lengths_of([{"values": [1]}])
    with pytest.raises(ValueError, match=r"no 'input_ids' to measure"):
        lengths_of([{"input_ids": 3}])


@pytest.mark.parametrize(
    ("strategy", "kind"),
    [("random", EpochSampler), ("sequential", SequentialSampler), ("group_by_length", LengthGrouped),
     ("batch_rebalance", BatchRebalance)],
)  # fmt: skip
def test_the_strategy_chooses_the_sampler(strategy, kind):
    data = [{"input_ids": [0] * size} for size in range(1, 20)]
    assert isinstance(train_sampler(arguments(train_sampling_strategy=strategy), data), kind)


def test_the_random_order_may_be_left_to_the_global_generator():
    sampler = train_sampler(arguments(accelerator_config={"use_seedable_sampler": False}), range(9))
    assert type(sampler) is RandomSampler


def test_a_stream_has_no_sampler_and_a_strategy_it_cannot_follow_is_named(stream, caplog):
    assert train_sampler(arguments(), stream(3)) is None
    assert not caplog.records
    assert train_sampler(arguments(train_sampling_strategy="group_by_length"), stream(3)) is None
    assert "`train_sampling_strategy='group_by_length'` is ignored because the training dataset does not" in caplog.text


def test_evaluation_goes_through_the_data_as_it_stands(stream):
    assert list(eval_sampler(range(5))) == [0, 1, 2, 3, 4]
    assert eval_sampler(stream(3)) is None
