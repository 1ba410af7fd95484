import copy

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers.optimization import get_scheduler
from transformers.trainer_utils import SchedulerType

from xdpx.optimizers.lr_schedulers.named import SCHEDULES, scheduler_for, steps_on_metric

BY_UPDATE = [
    ("linear", {}),
    ("cosine", {}),
    ("cosine", {"num_cycles": 1.5}),
    ("cosine_with_restarts", {}),
    ("cosine_with_restarts", {"num_cycles": 3}),
    ("polynomial", {}),
    ("polynomial", {"lr_end": 1e-3, "power": 2.0}),
    ("constant", {}),
    ("constant_with_warmup", {}),
    ("inverse_sqrt", {}),
    ("inverse_sqrt", {"timescale": 20}),
    ("cosine_with_min_lr", {"min_lr": 0.01}),
    ("cosine_with_min_lr", {"min_lr_rate": 0.3, "num_cycles": 1.0}),
    ("cosine_warmup_with_min_lr", {"min_lr": 0.01}),
    ("cosine_warmup_with_min_lr", {"min_lr_rate": 0.3, "warmup_lr_rate": 0.2}),
    ("warmup_stable_decay", {"num_decay_steps": 8}),
    ("warmup_stable_decay", {"num_decay_steps": 8, "num_stable_steps": 3, "min_lr_ratio": 0.1}),
    ("warmup_stable_decay", {"num_decay_steps": 8, "warmup_type": "cosine", "decay_type": "linear"}),
    ("warmup_stable_decay", {"num_decay_steps": 8, "warmup_type": "1-sqrt", "decay_type": "1-sqrt"}),
]
TOTAL = 30


def optimizer():
    weights = [torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))]
    return torch.optim.SGD([{"params": weights[:1]}, {"params": weights[1:], "lr": 0.02}], lr=0.1)


def rates(scheduler, steps):
    seen = []
    for _ in range(steps):
        seen.append(scheduler.get_last_lr())
        scheduler.optimizer.step()
        scheduler.step()
    return seen


def original(name, warmup, keys):
    return get_scheduler(name, optimizer(), warmup, TOTAL, dict(keys))


def test_every_name_of_the_original_is_known():
    assert sorted(SCHEDULES) == sorted(name.value for name in SchedulerType)


@pytest.mark.filterwarnings("ignore:Both num_training_steps")
@pytest.mark.parametrize("warmup", [0, 1, 7])
@pytest.mark.parametrize(("name", "keys"), BY_UPDATE)
def test_rates_are_those_of_the_original_at_every_update(name, keys, warmup):
    ours = rates(scheduler_for(name, optimizer(), warmup, TOTAL, keys), TOTAL + 3)
    theirs = rates(original(name, warmup, keys), TOTAL + 3)
    assert all(a == pytest.approx(b, rel=1e-12, abs=1e-15) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.filterwarnings("ignore:Both num_training_steps")
@pytest.mark.parametrize(("name", "keys"), BY_UPDATE)
def test_the_state_is_the_one_of_the_original_and_either_loads_the_others(name, keys):
    ours, theirs = scheduler_for(name, optimizer(), 5, TOTAL, keys), original(name, 5, keys)
    rates(ours, 9)
    rates(theirs, 9)
    assert {**ours.state_dict(), "_last_lr": None} == {**theirs.state_dict(), "_last_lr": None}
    resumed, back = scheduler_for(name, optimizer(), 5, TOTAL, keys), original(name, 5, keys)
    resumed.load_state_dict(copy.deepcopy(theirs.state_dict()))
    back.load_state_dict(copy.deepcopy(ours.state_dict()))
    expected = rates(original(name, 5, keys), 15)[10:]
    for scheduler in (resumed, back):
        scheduler.optimizer.step()
        scheduler.step()
        assert all(
            a == pytest.approx(b, rel=1e-12, abs=1e-15) for a, b in zip(rates(scheduler, 5), expected, strict=True)
        )


@pytest.mark.parametrize(
    ("name", "keys"),
    [("reduce_lr_on_plateau", {"patience": 1, "factor": 0.5}), ("greedy", {"patience": 1, "min_lr": 1e-4})],
)
def test_schedules_of_a_metric_follow_the_original(name, keys):
    ours, theirs = scheduler_for(name, optimizer(), 0, TOTAL, keys), original(name, 0, keys)
    for metric in (1.0, 0.9, 0.9, 0.95, 0.97, 0.98, 0.5, 0.4, 0.3, 0.2):
        ours.step(metric)
        theirs.step(metric)
        assert [group["lr"] for group in ours.optimizer.param_groups] == [
            group["lr"] for group in theirs.optimizer.param_groups
        ]
    assert ours.state_dict() == theirs.state_dict()


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_what_steps_on_a_metric_says_so(name):
    keys = {"warmup_stable_decay": {"num_decay_steps": 5}}.get(name, {"min_lr": 0.01} if "min_lr" in name else {})
    made = scheduler_for(name, optimizer(), 2, TOTAL, keys)
    assert steps_on_metric(made) == (SCHEDULES[name] == "metric")


def test_a_schedule_that_ends_at_its_warm_up_does_not_divide_by_nothing():
    assert len(rates(scheduler_for("polynomial", optimizer(), TOTAL, TOTAL), TOTAL + 2)) == TOTAL + 2


def test_the_enum_of_the_original_names_the_same():
    assert isinstance(scheduler_for(SchedulerType.LINEAR, optimizer(), 0, TOTAL), LambdaLR)


@pytest.mark.parametrize(
    ("name", "keys", "error", "message"),
    [
        ("cosin", {}, ValueError, "no schedule 'cosin'. Did you mean 'cosine'"),
        ("cosine", {"cycles": 2}, TypeError, "'cycles' is unknown.*num_cycles"),
        ("linear", {"power": 2}, TypeError, "'power' is unknown. This schedule takes nothing"),
        ("warmup_stable_decay", {}, TypeError, "'num_decay_steps' is missing. Give it"),
        ("warmup_stable_decay", {"num_decay_steps": 3, "decay_type": "exp"}, ValueError, "decay_type is 'exp'"),
        ("cosine_with_min_lr", {}, ValueError, "neither min_lr nor min_lr_rate is given"),
        (
            "cosine_with_min_lr",
            {"min_lr": 0.1, "min_lr_rate": 0.1},
            ValueError,
            "both min_lr and min_lr_rate are given",
        ),
        ("polynomial", {"lr_end": 0.1}, ValueError, "lr_end is 0.1, not below learning_rate 0.1"),
    ],
)
def test_what_makes_no_sense_is_refused(name, keys, error, message):
    with pytest.raises(error, match=message):
        scheduler_for(name, optimizer(), 0, TOTAL, keys)
