import copy

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR
from transformers.optimization import get_scheduler
from transformers.trainer_utils import SchedulerType

from xdpx.optimizers.lr_schedulers import OnMetric, lr_schedulers
from xdpx.optimizers.pytorch.scheduling import scheduler_for, steps_on_metric

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
    assert {name.value for name in SchedulerType} <= set(lr_schedulers)


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


@pytest.mark.parametrize("name", list(lr_schedulers))
def test_what_steps_on_a_metric_says_so(name):
    keys = {"warmup_stable_decay": {"num_decay_steps": 5}}.get(name, {"min_lr": 0.01} if "min_lr" in name else {})
    made = scheduler_for(name, optimizer(), 2, TOTAL, keys)
    assert steps_on_metric(made) == issubclass(lr_schedulers[name], OnMetric)


def test_a_schedule_that_ends_at_its_warm_up_does_not_divide_by_nothing():
    assert len(rates(scheduler_for("polynomial", optimizer(), TOTAL, TOTAL), TOTAL + 2)) == TOTAL + 2


def test_the_enum_of_the_original_names_the_same():
    assert isinstance(scheduler_for(SchedulerType.LINEAR, optimizer(), 0, TOTAL), LambdaLR)


@pytest.mark.parametrize(
    ("name", "keys", "error", "message"),
    [
        ("cosin", {}, ValueError, "no schedule 'cosin'. Did you mean 'cosine'"),
        ("cosine", {"cycles": 2}, TypeError, "'cycles' is unknown.*num_cycles"),
        ("linear", {"power": 2}, TypeError, "'power' is unknown. This schedule takes no keys"),
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


@pytest.mark.parametrize(("name", "more"), [each for each in BY_UPDATE if each[0] != "constant"])
def test_scripts_find_the_keywords_of_the_original_in_a_schedule(name, more):
    ours, theirs = ([torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)] for _ in range(2))
    ours, theirs = scheduler_for(name, *ours, 2, 12, more), get_scheduler(name, *theirs, 2, 12, more)
    assert ours.lr_lambdas[0].keywords == theirs.lr_lambdas[0].keywords


KEYS = {
    "cosine_with_min_lr": {"min_lr_rate": 0.3},
    "cosine_warmup_with_min_lr": {"min_lr_rate": 0.3, "warmup_lr_rate": 0.2},
    "polynomial": {"power": 2.0},
    "warmup_stable_decay": {"num_decay_steps": 8},
    "exponential_decay": {"decay_steps": 3},
    "one_cycle": {"anneal_strategy": "cosine"},
}
OF_BOTH_DOORS = [name for name in lr_schedulers if not issubclass(lr_schedulers[name], OnMetric)]


@pytest.mark.parametrize("name", OF_BOTH_DOORS)
def test_both_doors_take_every_update_at_the_same_rate(name):
    kind, keys = lr_schedulers[name], KEYS.get(name, {})
    declared = kind.Parameters.model_fields.keys() & {"warmup_steps", "learning_rate"}
    common = {key: value for key, value in {"warmup_steps": 4, "learning_rate": 0.1}.items() if key in declared}
    schedule = kind(kind.Parameters(**common, **keys), total_steps=TOTAL)
    found = rates(scheduler_for(name, optimizer(), 4, TOTAL, keys), TOTAL)
    assert found == [[rate * schedule.factor(number) for rate in (0.1, 0.02)] for number in range(1, TOTAL + 1)]


def test_one_cycle_moves_the_first_beta_of_a_trainer_too_and_goes_on_from_its_state():
    keys = {"cycle_momentum": True, "base_momentum": 0.5}
    adam = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))], betas=(0.8, 0.99))
    again = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))], betas=(0.8, 0.99))
    scheduler, resumed = scheduler_for("one_cycle", adam, 2, 10, keys), scheduler_for("one_cycle", again, 2, 10, keys)
    rates(scheduler, 1)
    assert adam.param_groups[0]["betas"] == (pytest.approx(0.5), 0.99)
    rates(scheduler, 3)
    resumed.load_state_dict(copy.deepcopy(scheduler.state_dict()))
    rates(scheduler, 1)
    rates(resumed, 1)
    assert again.param_groups[0]["betas"] == adam.param_groups[0]["betas"] == (pytest.approx(0.65), 0.99)


def test_a_momentum_that_no_group_has_is_refused():
    adagrad = torch.optim.Adagrad([torch.nn.Parameter(torch.ones(2))])
    with pytest.raises(ValueError, match="cycle_momentum is true, but Adagrad has no betas or momentum"):
        scheduler_for("one_cycle", adagrad, 2, 10, {"cycle_momentum": True})


def test_a_value_of_the_wrong_type_is_named():
    with pytest.raises(ValueError, match="of 'one_cycle': anneal_p is 'much'"):
        scheduler_for("one_cycle", optimizer(), 2, 10, {"anneal_p": "much"})


@pytest.mark.parametrize(
    ("name", "warmup", "keys", "told"),
    [
        ("constant", 3, {}, "warmup_steps: has no effect, as the schedule 'constant' has no warm-up"),
        ("reduce_lr_on_plateau", 3, {}, "warmup_steps: has no effect, as the schedule 'reduce_lr_on_plateau'"),
        ("linear", 10, {}, "warmup_steps: are 10 of 10 updates, so that the learning rate rises to the end"),
        ("constant_with_warmup", 3, {"num_cycles": 2}, "lr_scheduler_kwargs: num_cycles has no effect"),
        ("linear", 9, {}, ""),
        ("constant", 0, {}, ""),
    ],
)
def test_settings_of_a_schedule_that_have_no_effect_are_told_of(name, warmup, keys, told, capsys):
    scheduler_for(name, optimizer(), warmup, 10, keys)
    printed = capsys.readouterr().err
    assert told in printed
    assert told or "warning" not in printed
