from types import SimpleNamespace

import pytest
from torch.utils.data import DataLoader
from transformers import Trainer

from xdpx.datasets.plan import Position
from xdpx.trainer.data.loaders import train_loader
from xdpx.trainer.data.options import LoaderOptions
from xdpx.trainer.data.plan import FOR_EVER, num_examples, plan_training


def arguments(**changes):
    defaults = {
        "max_steps": -1,
        "num_train_epochs": 3.0,
        "gradient_accumulation_steps": 1,
        "per_device_train_batch_size": 4,
    }
    return SimpleNamespace(**(defaults | changes))


def original(args, loader, num_processes):
    """The seven numbers of the original, from its own method."""
    total = args.per_device_train_batch_size * args.gradient_accumulation_steps * num_processes
    trainer = SimpleNamespace(
        args=args,
        get_total_train_batch_size=lambda _: total,
        get_sp_size=lambda: 1,
        num_examples=lambda loader: Trainer.num_examples(SimpleNamespace(args=args), loader),
    )
    return Trainer.set_initial_training_values(trainer, args, loader)


@pytest.mark.parametrize("samples", [1, 8, 23])
@pytest.mark.parametrize(
    "changes",
    [{}, {"num_train_epochs": 1.5}, {"max_steps": 1}, {"max_steps": 17}, {"gradient_accumulation_steps": 4},
     {"gradient_accumulation_steps": 4, "num_train_epochs": 0.3}, {"gradient_accumulation_steps": 3, "max_steps": 9}],
)  # fmt: skip
def test_the_numbers_of_a_training_are_those_of_the_original(samples, changes):
    args, loader = arguments(**changes), DataLoader(range(samples), batch_size=4)
    assert plan_training(args, loader, batch_size=4).as_tuple() == original(args, loader, 1)
    assert plan_training(args, loader, batch_size=4, num_processes=2).as_tuple() == original(args, loader, 2)


def test_a_stream_is_trained_on_for_as_many_steps_as_asked_for(stream):
    args, loader = arguments(max_steps=5, gradient_accumulation_steps=2), DataLoader(stream(9), batch_size=4)
    plan = plan_training(args, loader, batch_size=4)
    assert plan.as_tuple() == original(args, loader, 1)
    assert plan.num_epochs == FOR_EVER


def test_a_stream_without_a_number_of_steps_is_refused(stream):
    with pytest.raises(ValueError, match="max_steps: is -1, but the training data has no length"):
        plan_training(arguments(), DataLoader(stream(9)), batch_size=4)


def test_data_that_gives_no_batch_is_refused():
    with pytest.raises(ValueError, match="It has 3 samples; .* batches of 8 samples leave nothing"):
        plan_training(arguments(), DataLoader(range(3), batch_size=8, drop_last=True), batch_size=8)


def test_examples_are_estimated_where_the_data_has_no_length():
    assert num_examples([1, 2, 3], 4) == 12


def test_the_place_after_some_steps_is_found_by_counting_them():
    plan = plan_training(arguments(gradient_accumulation_steps=2), DataLoader(range(40), batch_size=4), batch_size=4)
    assert plan.steps_per_epoch == 5
    assert plan.position(0) == Position(1, 0, 0)
    assert plan.position(7) == Position(2, 2, 4)
    assert plan.position(10) == Position(3, 0, 0)


@pytest.mark.parametrize(("batch_size", "num_processes"), [(4, 1), (2, 1), (8, 1), (4, 2), (2, 2)])
def test_the_place_is_where_the_samples_were_left_whatever_the_batch_size(ranks, numbers, batch_size, num_processes):
    args = arguments(per_device_train_batch_size=batch_size)
    loader = train_loader(
        numbers(80), collator=None, sampler=None, options=LoaderOptions(batch_size), world=ranks(0, num_processes)
    )
    plan = plan_training(args, loader, batch_size=batch_size, num_processes=num_processes)
    position = plan.position(999, {"epoch": 2, "samples": 48, "ended": False})
    assert position == Position(3, 48 // (batch_size * num_processes), 48 // (batch_size * num_processes))
    assert plan.carried_over(Position(3, 6, 12), samples_per_batch=4) == position


def test_a_resumed_plan_ends_with_the_epochs_or_with_the_steps_that_were_asked_for():
    plan = plan_training(arguments(), DataLoader(range(40), batch_size=4), batch_size=4)
    place = Position(2, 4, 4)  # reached in 7 steps with batches of 8
    assert 7 - plan.steps_to(place) == -7
    by_epochs = plan.shifted(-7, max_steps=-1)
    assert (by_epochs.num_epochs, by_epochs.max_steps) == (3, 23)
    assert by_epochs.position(7) == place
    plan = plan_training(arguments(max_steps=20), DataLoader(range(40), batch_size=4), batch_size=4)
    by_steps = plan.shifted(-7, max_steps=20)
    assert (by_steps.num_epochs, by_steps.max_steps) == (3, 20)
    assert plan.shifted(0, max_steps=20) == plan


def test_a_place_between_two_steps_leaves_no_batch_out():
    args = arguments(gradient_accumulation_steps=2)
    plan = plan_training(args, DataLoader(range(40), batch_size=4), batch_size=4)
    assert plan.carried_over(Position(1, 7, 7), samples_per_batch=4) == Position(1, 3, 7)


def test_batches_are_counted_where_nobody_knows_how_many_samples_they_have():
    plan = plan_training(arguments(), DataLoader(range(80), batch_size=4), batch_size=4)
    assert plan.position(7, {"epoch": 1, "samples": None, "batches": 3, "ended": False}) == Position(2, 3, 3)
    assert plan.position(7, {"epoch": 0, "samples": None, "ended": False}) == Position(1, 7, 7)


def test_after_the_end_of_an_epoch_the_next_one_begins():
    plan = plan_training(arguments(), DataLoader(range(10), batch_size=4), batch_size=4)
    assert plan.position(3, {"epoch": 0, "samples": 12, "ended": True}) == Position(2, 0, 0)
    assert plan.carried_over(Position(1, 3, 3), samples_per_batch=None) == Position(2, 0, 0)
