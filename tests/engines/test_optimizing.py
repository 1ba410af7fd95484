from dataclasses import dataclass, field

import pytest
import torch
from torch import nn

from xdpx.config.faults import ConfigError
from xdpx.engines.base import Task
from xdpx.engines.pytorch.engine import PyTorchEngine
from xdpx.engines.pytorch.gradients import ROWS, SCALING, is_able
from xdpx.engines.pytorch.optimizing import check, set_rates
from xdpx.engines.pytorch.options import EngineOptions
from xdpx.optimizers import optimizers

CLIP, RATE = 0.05, 0.1
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def plain_step(optimizer):
    for group in optimizer.param_groups:
        for weight in group["params"]:
            if weight.grad is not None:
                weight.data.add_(weight.grad.sign() * weight.grad.abs().sqrt(), alpha=-group["lr"])


class NoClosure(torch.optim.Optimizer):
    """A rule that is not linear in the gradient, whose step takes nothing."""

    def __init__(self, params, lr, power=1):
        super().__init__(params, {"lr": lr, "power": power})

    step = plain_step


def sparse(groups):
    return torch.optim.SparseAdam([{**group, "params": [group["params"][0]]} for group in groups], lr=RATE)


RULES = {
    "SGD": lambda groups: torch.optim.SGD(groups, lr=RATE, momentum=0.9, nesterov=True, weight_decay=0.01),
    "AdamW": lambda groups: torch.optim.AdamW(groups, weight_decay=0.1),
    "AdamW fused": lambda groups: torch.optim.AdamW(groups, fused=True),
    "AdamW foreach": lambda groups: torch.optim.AdamW(groups, foreach=True),
    "RMSprop": lambda groups: torch.optim.RMSprop(groups, momentum=0.5),
    "Adagrad": torch.optim.Adagrad,
    "no closure": lambda groups: NoClosure(groups, RATE),
    "SparseAdam": sparse,
}


class Net(nn.Module):
    def __init__(self, sparse_rows=False):
        super().__init__()
        self.table = nn.Embedding(9, 4, sparse=sparse_rows)
        self.top = nn.Linear(4, 3)

    def forward(self, tokens, scale):
        return self.top(self.table(tokens).mean(1)) * scale


@dataclass
class Summing(Task):
    """Sums the loss over the rows of a batch."""

    sparse_rows: bool = False
    model: nn.Module = field(init=False)

    def __post_init__(self):
        self.model = Net(self.sparse_rows)

    def train_step(self, batch):
        logits = self.model(batch["tokens"], batch["scale"])
        return nn.functional.cross_entropy(logits.float(), batch["target"], reduction="sum"), len(logits), {}


def batches():
    drawn = torch.Generator().manual_seed(3)
    found = [
        {"tokens": torch.randint(0, 9, (rows, 5), generator=drawn), "scale": torch.ones(1),
         "target": torch.randint(0, 3, (rows,), generator=drawn)}
        for rows in (4, 6, 3, 5, 7, 2, 4, 4)
    ]  # fmt: skip
    found[3]["scale"] = torch.tensor([float("nan")])
    return [{name: value.numpy() for name, value in batch.items()} for batch in found]


def by_hand(rule, start, precision, scale, sparse_rows, *, ends):
    """What anybody would write: backward, divide, clip, look, step."""
    task = Summing(sparse_rows)
    task.model.load_state_dict(start)
    trained = list(task.model.parameters())
    optimizer = rule([{"params": trained, "lr": RATE}])
    given = batches()
    for place in range(0, len(given), 2):
        optimizer.zero_grad()
        count = 0
        for batch in given[place : place + 2]:
            with torch.autocast("cpu", dtype=TYPES.get(precision), enabled=precision in TYPES):
                loss, rows, _ = task.train_step({name: torch.from_numpy(value) for name, value in batch.items()})
            (loss * scale).backward()
            count += rows
        moved = [weight for group in optimizer.param_groups for weight in group["params"]]
        for weight in moved:
            weight.grad = (weight.grad.coalesce() if weight.grad.is_sparse else weight.grad) / (count * scale)
        norm = torch.linalg.vector_norm(
            torch.stack([(w.grad.values() if w.grad.is_sparse else w.grad).norm() for w in moved])
        )
        if norm.isfinite():
            for weight in moved:
                weight.grad = weight.grad / max(float(norm) / CLIP, 1.0)
            optimizer.step()
        elif ends:
            break
    return task.model.state_dict()


@pytest.mark.parametrize(
    ("precision", "action"), [("fp32", "skip"), ("fp32", "raise"), ("bf16", "raise"), ("fp16", "raise")]
)
@pytest.mark.parametrize("name", RULES)
def test_any_optimizer_of_torch_trains_as_in_a_loop_written_by_hand(name, precision, action):
    """Over groups of two batches of other sizes, clipped, one NaN: where that ends it, no weight moves after it."""
    rule, sparse_rows = RULES[name], name == "SparseAdam"
    engine = PyTorchEngine(
        lambda: Summing(sparse_rows),
        make_optimizer=lambda model: rule([{"params": list(model.parameters()), "lr": RATE}]),
        options=EngineOptions(device="cpu", precision=precision, clip_norm=CLIP, init_scale=64.0, scale_tolerance=1.0,
                              nonfinite_steps=action),
    )  # fmt: skip
    state = engine.start(1)
    start = {key: value.clone() for key, value in state.task.model.state_dict().items()}
    given, norms = batches(), []
    for place in range(0, len(given), 2):
        state, facts = engine.update(state, given[place : place + 2])
        norms.append(float(facts["grad_norm"]))
    scale, ends = (64.0, False) if precision == "fp16" else (1.0, action == "raise")
    expected = by_hand(rule, start, precision, scale, sparse_rows, ends=ends)
    for key, value in engine.weights(state).items():
        torch.testing.assert_close(value, expected[key], rtol=1e-5, atol=1e-6)
    told = action == "raise"  # one that is skipped counts for nothing
    assert [norm == norm for norm in norms] == [True, not told, True, True]
    assert max(norm for norm in norms if norm == norm) > CLIP


class Changed(optimizers["adam"]):
    """Overrides the step."""

    step = plain_step


class ChangedKnowingly(Changed):
    """Overrides the step, and says what it can do."""

    takes_scaling = True


class Renamed(optimizers["adam"]):
    """Changes nothing."""


def made(kind):
    return kind(kind.Parameters(), groups=[{"params": [nn.Parameter(torch.ones(2))], "lr": RATE}])


@pytest.mark.parametrize(
    ("kind", "abilities"),
    [
        (optimizers["adam"], {SCALING, ROWS}), (optimizers["lamb"], {SCALING, ROWS}), (Renamed, {SCALING, ROWS}),
        (Changed, set()), (ChangedKnowingly, {SCALING}),
    ],
)  # fmt: skip
def test_an_ability_goes_with_the_step_that_has_it(kind, abilities):
    assert {ability for ability in (SCALING, ROWS) if is_able(made(kind), ability)} == abilities
    assert not is_able(torch.optim.SGD([nn.Parameter(torch.ones(2))]), SCALING)


def test_our_optimizers_take_the_fast_path(monkeypatch):
    """The host asks nothing of the device: what tells whether to step is handed on, not looked at."""
    optimizer = made(optimizers["adam"])
    engine = PyTorchEngine(Summing(), make_optimizer=lambda _: optimizer, options=EngineOptions(device="cpu"))
    state = engine.start(1)
    optimizer.add_param_group({"params": list(state.task.model.parameters()), "lr": RATE, "initial_lr": RATE})
    monkeypatch.setattr(torch.Tensor, "__bool__", lambda _: pytest.fail("the host waited for the device"))
    monkeypatch.setattr(torch.Tensor, "item", lambda _: pytest.fail("the host waited for the device"))
    engine.update(state, batches()[:2])


class Cycle:
    """A schedule that moves the first beta."""

    def factor(self, number):
        return 0.5

    def momentum(self, number):
        return 0.7


def test_a_momentum_takes_the_place_of_betas_that_are_not_there():
    weight = nn.Parameter(torch.ones(2))
    sgd, adam = torch.optim.SGD([weight], lr=RATE, momentum=0.9), torch.optim.AdamW([weight], lr=RATE)
    for optimizer in (sgd, adam):
        optimizer.param_groups[0]["initial_lr"] = RATE
        check(optimizer, Cycle())
        set_rates(optimizer, 0.5, 0.7)
    assert sgd.param_groups[0]["momentum"] == 0.7
    assert adam.param_groups[0]["betas"] == (0.7, 0.999)
    assert sgd.param_groups[0]["lr"] == RATE / 2


def test_a_schedule_that_moves_what_an_optimizer_has_not_is_refused():
    with pytest.raises(ConfigError, match="cycle_momentum: is true, but Adagrad has neither"):
        check(torch.optim.Adagrad([nn.Parameter(torch.ones(2))]), Cycle())


class Falling:
    """A schedule that moves the learning rate and the momentum."""

    def factor(self, num_update):
        return 1 / (1 + num_update)

    def momentum(self, num_update):
        return 0.9 - 0.1 * num_update

    def state_dict(self):
        return {}


@pytest.mark.parametrize("rule", ["SGD", "AdamW"])
@pytest.mark.parametrize("updates", [0, 3])
def test_a_state_that_is_restored_and_takes_no_more_updates_is_saved_as_it_was(rule, updates):
    def made(model):
        return RULES[rule]([{"params": list(model.parameters())}])

    @dataclass
    class Whole(Task):
        model: nn.Module

    engine = PyTorchEngine(
        lambda: Whole(Net()), make_optimizer=made, schedule=Falling(), options=EngineOptions(device="cpu")
    )
    state = engine.start(1)
    if updates:
        state.num_updates = updates
        set_rates(state.optimizer, Falling().factor(updates), Falling().momentum(updates))
    before = engine.snapshot(state)["optimizer"]["param_groups"]
    assert engine.snapshot(engine.restore(engine.snapshot(state)))["optimizer"]["param_groups"] == before


def test_what_is_no_optimizer_is_refused_by_what_it_lacks():
    with pytest.raises(ConfigError, match=r"optimizer: is int, which has no step, zero_grad, param_groups, state_dict"):
        check(5, None)
