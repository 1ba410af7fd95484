import math
import random

import numpy as np
import pytest
import torch
from torch import nn

from xdpx.config.faults import ConfigError
from xdpx.engines.base import rates_of, schedule_state
from xdpx.engines.pytorch.engine import PyTorchEngine
from xdpx.engines.pytorch.options import EngineOptions, pick_device
from xdpx.losses import losses
from xdpx.optimizers import optimizers
from xdpx.optimizers.lr_schedulers import lr_schedulers
from xdpx.tasks import tasks

RANDOM = np.random.default_rng(0)


class Small(nn.Module):
    """A network with an embedding, dropout and a weight that learns nothing."""

    def __init__(self, width=4):
        super().__init__()
        self.table = nn.Embedding(12, width)
        self.dropout = nn.Dropout(0.3)
        self.top = nn.Linear(width, 2)
        self.fixed = nn.Parameter(torch.randn(3), requires_grad=False)

    def parameter_groups(self, learning_rate):
        return [{"params": [w for w in self.parameters() if w.requires_grad], "lr": learning_rate, "name": "all"}]

    def forward(self, tokens):
        return self.top(self.dropout(self.table(tokens)).mean(dim=1))


def batch(rows=6):
    tokens = RANDOM.integers(0, 12, (rows, 5))
    return {"net_input": {"tokens": tokens}, "target": tokens[:, 0] % 2, "ntokens": tokens.size}


BATCHES = [batch() for _ in range(24)]


def engine(optimizer="adam", schedule="one_cycle", width=4, total_steps=20, **options):
    return own_engine(lambda: Small(width), None, optimizer, schedule, total_steps, **options)


def own_engine(
    make_model, loss=None, optimizer="adam", schedule="one_cycle", total_steps=20, task_kind=tasks["default"], **options
):
    loss = loss or losses["cross_entropy"]

    def task():
        parameters = task_kind.Parameters(model="cls_cnn", loss="cross_entropy")
        return task_kind(parameters, model=make_model(), loss=loss(loss.Parameters()))

    kind, curve = optimizers[optimizer], lr_schedulers[schedule]
    return PyTorchEngine(
        task,
        make_optimizer=lambda model: kind(kind.Parameters(weight_decay=0.1), groups=model.parameter_groups(0.05)),
        schedule=curve(curve.Parameters(), total_steps=total_steps),
        options=EngineOptions(device="cpu", **options),
    )


def train(chosen, state, updates, update_freq=1):
    for number in updates:
        group = BATCHES[number * update_freq : (number + 1) * update_freq]
        state, _ = chosen.update(state, group)
    return state


def same(first, second):
    """Compare nested values bit for bit."""
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[name], second[name]) for name in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return first == second


@pytest.mark.parametrize("optimizer", ["adam", "lamb"])
@pytest.mark.parametrize("ema_decay", [1.0, 0.9])
@pytest.mark.parametrize("update_freq", [1, 3])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(optimizer, ema_decay, update_freq, precision):
    options = {"ema_decay": ema_decay, "precision": precision, "clip_norm": 0.1, "seed": 3}
    whole = engine(optimizer, **options)
    state = train(whole, whole.start(1), range(7), update_freq)
    first = engine(optimizer, **options)
    saved = first.snapshot(train(first, first.start(1), range(4), update_freq))
    second = engine(optimizer, **options)
    resumed = train(second, second.restore(saved), range(4, 7), update_freq)
    assert same(whole.snapshot(state), second.snapshot(resumed))
    assert same(whole.weights(state), second.weights(resumed))


def test_scoring_between_updates_changes_nothing():
    plain, watched = engine(), engine()
    state = train(plain, plain.start(1), range(4))
    other = watched.start(1)
    for number in range(4):
        watched.score(other, BATCHES[number])
        other = train(watched, other, [number])
    assert same(plain.snapshot(state), watched.snapshot(other))


def test_a_snapshot_stands_still_while_training_goes_on():
    chosen = engine()
    state = train(chosen, chosen.start(1), range(2))
    saved = chosen.snapshot(state)
    before = saved["model"]["top.weight"].clone()
    train(chosen, state, range(2, 4))
    assert torch.equal(saved["model"]["top.weight"], before)


class DrawingLoss(losses["cross_entropy"]):
    """A loss that draws from the global generators of Python and NumPy."""

    def __call__(self, model, batch):
        loss_sum, count, facts = super().__call__(model, batch)
        return loss_sum * (1 + random.random() + np.random.rand()), count, facts


def test_a_resumed_run_repeats_what_a_loss_draws_from_python_and_numpy():
    chosen = own_engine(Small, DrawingLoss)
    state = train(chosen, chosen.start(1), range(2))
    saved = chosen.snapshot(state)
    whole = chosen.weights(train(chosen, state, range(2, 4)))
    assert same(whole, chosen.weights(train(chosen, chosen.restore(saved), range(2, 4))))


def test_a_resumed_run_repeats_what_a_task_draws_before_an_update():
    class Drawing(tasks["default"]):
        def begin_update(self, number):
            self.factor = 1 + random.random() + np.random.rand() + float(torch.rand(()))

        def train_step(self, batch):
            loss_sum, count, facts = super().train_step(batch)
            return loss_sum * self.factor, count, facts

    chosen = own_engine(Small, task_kind=Drawing)
    state = train(chosen, chosen.start(1), range(2))
    saved = chosen.snapshot(state)
    whole = chosen.weights(train(chosen, state, range(2, 4)))
    random.seed(5)
    torch.manual_seed(5)
    assert same(whole, chosen.weights(train(chosen, chosen.restore(saved), range(2, 4))))


def test_the_seed_decides_weights_that_are_drawn_from_python_and_numpy():
    class Drawn(Small):
        def __init__(self):
            super().__init__()
            self.top.weight.data.mul_(float(np.random.rand())).add_(random.random())

    chosen = own_engine(Drawn)
    before = random.getstate(), np.random.get_state()[1].tolist()
    first, again, other = (chosen.weights(chosen.start(seed)) for seed in (1, 1, 2**40))
    assert same(first, again)
    assert not same(first, other)
    assert before == (random.getstate(), np.random.get_state()[1].tolist())


def test_the_seed_decides_the_first_weights_and_the_dropout():
    weights = [engine().weights(engine().start(seed)) for seed in (1, 1, 2)]
    assert same(weights[0], weights[1])
    assert not same(weights[0], weights[2])
    ends = []
    for seed in (1, 1, 2):
        chosen = engine(seed=seed)
        ends.append(chosen.weights(train(chosen, chosen.start(1), range(2))))
    assert same(ends[0], ends[1])
    assert not same(ends[0], ends[2])


def test_starting_leaves_the_random_state_of_the_program_alone():
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    engine().start(3)
    assert torch.equal(torch.rand(1), expected)


def test_cutting_a_group_into_other_micro_batches_changes_nothing_in_the_mathematics():
    rows = batch(rows=12)
    cuts = ([slice(0, 12)], [slice(0, 2), slice(2, 9), slice(9, 12)])
    found = []
    for cut in cuts:
        chosen = engine()
        state = chosen.start(1)
        state.task.model.dropout.p = 0.0
        parts = [{"net_input": {"tokens": rows["net_input"]["tokens"][s]}, "target": rows["target"][s]} for s in cut]
        state, facts = chosen.update(state, parts)
        found.append((chosen.weights(state)["top.weight"], chosen.facts_to_host(facts)))
    assert torch.allclose(found[0][0], found[1][0], atol=1e-6)
    assert found[0][1]["grad_norm"] == pytest.approx(found[1][1]["grad_norm"], rel=1e-5)
    assert found[0][1]["count"] == found[1][1]["count"] == 12


def test_one_update_is_that_of_a_plain_loop():
    chosen = engine(clip_norm=0.1, schedule="constant")
    state = chosen.start(1)
    state.task.model.dropout.p = 0.0
    torch.manual_seed(1)
    model = Small()
    model.dropout.p = 0.0
    plain = torch.optim.AdamW(model.parameters(), lr=0.05, eps=1e-6, weight_decay=0.1)
    for rows in BATCHES[:3]:
        state, facts = chosen.update(state, [rows])
        plain.zero_grad()
        logits = model(torch.from_numpy(rows["net_input"]["tokens"]))
        nn.functional.cross_entropy(logits, torch.from_numpy(rows["target"])).backward()
        norm = nn.utils.clip_grad_norm_([w for w in model.parameters() if w.requires_grad], 0.1)
        plain.step()
        assert chosen.facts_to_host(facts)["grad_norm"] == pytest.approx(float(norm), rel=1e-4)
    ours = chosen.weights(state)
    assert all(torch.allclose(value, ours[name], atol=1e-5) for name, value in model.state_dict().items())


def test_facts_say_what_happened():
    chosen = engine(clip_norm=1e-3, schedule="constant")
    _, facts = chosen.update(chosen.start(1), [BATCHES[0], BATCHES[1]])
    found = chosen.facts_to_host(facts)
    assert (found["count"], found["num_tokens"], found["clipped"]) == (12, 60, 1.0)
    assert found["learning_rate"] == pytest.approx(0.05)
    assert found["loss_sum"] > 0
    assert found["correct"] <= 12


def test_each_micro_batch_is_computed_in_one_autocast(monkeypatch):
    entered = []

    class Counted(torch.autocast):
        def __enter__(self):
            entered.append(self)
            return super().__enter__()

    chosen = engine(precision="bf16")
    state = chosen.start(1)
    monkeypatch.setattr(torch, "autocast", Counted)
    train(chosen, state, [0], update_freq=3)
    assert len(entered) == 3


def test_averaged_weights_are_scored_and_kept():
    chosen = engine(ema_decay=0.5, schedule="constant")
    state = chosen.start(1)
    start = chosen.weights(state)["top.bias"]
    state = train(chosen, state, [0])
    raw = state.task.model.top.bias.detach()
    assert torch.allclose(chosen.weights(state)["top.bias"], 0.5 * start + 0.5 * raw)
    prob = chosen.predictions_to_host(chosen.score(state, BATCHES[0]))["prob"]
    again = chosen.with_weights(chosen.weights(state))
    assert np.array_equal(prob, chosen.predictions_to_host(chosen.score(again, BATCHES[0]))["prob"])


def test_until_swa_starts_the_weights_of_now_are_scored_and_from_then_on_their_even_mean():
    chosen = engine(swa_start=2, schedule="constant")
    state, passed = chosen.start(1), []
    for number in range(4):
        state = train(chosen, state, [number])
        passed.append(state.task.model.top.bias.detach().clone())
        assert torch.allclose(chosen.weights(state)["top.bias"], sum(passed[1:], passed[0] * 0) / number) or number == 0
    assert torch.equal(chosen.weights(train(chosen, chosen.start(1), [0]))["top.bias"], passed[0])


def test_a_gradient_that_is_no_number_leaves_the_weights_and_shows():
    chosen = engine()
    state = chosen.start(1)
    with torch.no_grad():
        state.task.model.top.bias[0] = math.nan
    before = chosen.weights(state)
    state, facts = chosen.update(state, [BATCHES[0]])
    shown = chosen.facts_to_host(facts)
    assert math.isnan(shown["grad_norm"])
    assert math.isnan(shown["loss_sum"])
    assert torch.equal(before["table.weight"], chosen.weights(state)["table.weight"])


def test_updates_that_are_to_be_skipped_count_nothing_and_too_many_of_them_end_training():
    chosen = engine(nonfinite_steps="skip", ema_decay=0.9)
    state = train(chosen, chosen.start(1), range(2))
    before = chosen.snapshot(state)
    state.task.model.top.bias.register_hook(lambda gradient: gradient * math.nan)
    state, facts = chosen.update(state, [BATCHES[0]])
    shown = chosen.facts_to_host(facts)
    assert (shown["loss_sum"], shown["count"], shown["grad_norm"], shown["skipped"]) == (0.0, 0.0, 0.0, 1.0)
    assert shown["num_tokens"] == BATCHES[0]["ntokens"]
    after = chosen.snapshot(state)
    assert same(before["model"], after["model"])
    assert same(before["optimizer"]["state"], after["optimizer"]["state"])
    assert same(before["averaged"], after["averaged"])
    with pytest.raises(FloatingPointError, match="the last 100 updates were left out .* see with log_interval"):
        train(chosen, state, [0] * 99)


def test_updates_that_are_to_be_kept_are_taken_as_they_are():
    chosen = engine(nonfinite_steps="keep")
    state = chosen.start(1)
    state.task.model.top.bias.register_hook(lambda gradient: gradient * math.nan)
    state, facts = chosen.update(state, [BATCHES[0]])
    assert math.isnan(chosen.facts_to_host(facts)["grad_norm"])
    assert not chosen.is_finite(state)


def test_fp16_halves_its_loss_scale_until_the_gradient_fits():
    chosen = engine(precision="fp16", init_scale=2.0**40)
    state = chosen.start(1)
    skipped = []
    for number in range(30):
        before = state.loss_scale.scale
        state, facts = chosen.update(state, [BATCHES[number % 24]])
        skipped.append(chosen.facts_to_host(facts)["skipped"])
        assert state.loss_scale.scale == (before / 2 if skipped[-1] else before)
    assert skipped[0] == 1.0
    assert skipped[-1] == 0.0


def test_fp16_doubles_its_loss_scale_after_a_quiet_time():
    chosen = engine(precision="fp16", scale_window=3)
    state = train(chosen, chosen.start(1), range(3))
    assert (state.loss_scale.scale, state.loss_scale.clean) == (256.0, 0)


def test_fp16_gives_up_when_no_scale_helps():
    chosen = engine(precision="fp16")
    state = chosen.start(1)
    with torch.no_grad():
        state.task.model.top.bias[0] = math.nan
    with pytest.raises(FloatingPointError, match="loss scale"):
        train(chosen, state, range(20))


def test_a_snapshot_of_another_model_is_refused():
    first, second = engine(), engine(width=8)
    saved = first.snapshot(first.start(1))
    with pytest.raises(ConfigError, match=r"resume.*\n.*sizes.*table.weight.*\(12, 4\).*\(12, 8\)"):
        second.restore(saved)
    saved["model"]["more"] = torch.zeros(1)
    with pytest.raises(ConfigError, match="more only there"):
        first.restore(saved)


@pytest.mark.parametrize("change", [{"ema_decay": 0.9}, {"optimizer": "lamb"}, {"swa_start": 3}])
def test_a_snapshot_of_another_kind_of_run_is_refused(change):
    saved = engine().snapshot(train(engine(), engine().start(1), [0]))
    with pytest.raises(ConfigError, match=next(iter(change))):
        engine(**change).restore(saved)


def test_averages_of_other_weights_are_not_gone_on_with():
    first = engine(swa_start=2)
    saved = first.snapshot(train(first, first.start(1), range(4)))
    with pytest.raises(ConfigError, match="swa_start: is None, but the checkpoint has averaged weights"):
        engine().restore(saved)
    with pytest.raises(ConfigError, match="swa_start: has begun with update 3, but the average .* swa_start 2 and"):
        engine(swa_start=3).restore(saved)
    with pytest.raises(ConfigError, match="swa_start: has begun with update 3, but the average .* swa_start none"):
        engine(swa_start=3).restore({**saved, "swa": [None, 1]})
    later = engine(swa_start=9)
    state = later.restore(saved)
    assert torch.equal(later.weights(state)["top.bias"], state.task.model.top.bias)


@pytest.mark.parametrize("at", [3, 5])
def test_a_run_with_swa_that_is_resumed_is_the_uninterrupted_one(at):
    whole, second = (engine(swa_start=4, swa_interval=2) for _ in range(2))
    saved = whole.snapshot(train(whole, whole.start(1), range(at)))
    straight = train(whole, whole.start(1), range(9))
    assert same(whole.weights(straight), second.weights(train(second, second.restore(saved), range(at, 9))))


def test_a_snapshot_survives_a_file(tmp_path):
    chosen = engine(ema_decay=0.9)
    state = train(chosen, chosen.start(1), range(3))
    torch.save(chosen.snapshot(state), tmp_path / "full.pts")
    again = chosen.restore(torch.load(tmp_path / "full.pts", weights_only=True))
    assert same(chosen.snapshot(train(chosen, state, [3])), chosen.snapshot(train(chosen, again, [3])))


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="device"):
        PyTorchEngine(None, options=EngineOptions(device="cuda:99"))


def test_read_only_arrays_are_moved_without_a_warning():
    rows = {"net_input": {"tokens": BATCHES[0]["net_input"]["tokens"].copy()}, "target": BATCHES[0]["target"].copy()}
    for array in (rows["net_input"]["tokens"], rows["target"]):
        array.flags.writeable = False
    chosen = engine()
    assert chosen.score(chosen.start(1), rows)["pred"].shape == (6,)


@pytest.mark.parametrize("optimizer", ["adam", "lamb"])
def test_sizes_of_gradients_are_those_that_the_update_took(optimizer):
    chosen = engine(optimizer, clip_norm=1e-3)
    state, _ = chosen.update(chosen.start(1), [BATCHES[0]])
    mean, largest, zeros = chosen.gradient_sizes(state)["top.bias"]
    norm = math.sqrt(
        sum(float(weight.grad.square().sum()) for weight in state.task.model.parameters() if weight.grad is not None)
    )
    assert norm == pytest.approx(1e-3, rel=1e-3)
    assert 0 < mean <= largest <= norm
    assert zeros == 0.0
    unseen = 1 - len(np.unique(BATCHES[0]["net_input"]["tokens"])) / 12
    assert unseen <= chosen.gradient_sizes(state)["table.weight"].zeros < 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_missing_gpu_is_told_by_the_key_that_asked_for_it():
    with pytest.raises(ConfigError, match="cuda: is true, but this machine has no device 'cuda'"):
        pick_device("cuda")


def test_it_says_how_many_parameters_there_are_and_how_many_are_trained(capsys):
    chosen = engine()
    chosen.start(1)
    assert "| Small: 61 parameters, 58 trained" in capsys.readouterr().err


def test_weights_that_wait_for_the_first_batch_are_refused_by_their_names():
    class Lazy(Small):
        def __init__(self):
            super().__init__()
            self.top = nn.LazyLinear(2)

    with pytest.raises(ConfigError, match=r"model: has weights .* first batch \(top.weight, top.bias\)"):
        own_engine(Lazy).start(1)


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (torch.Tensor.item, "a float"),
        (torch.Tensor.detach, "no trained weight"),
        (lambda loss: loss.expand(3), r"shape \(3,\)"),
    ],
)
def test_a_loss_that_nothing_goes_backward_from_is_refused_by_what_it_gives(spoil, found):
    class Spoilt(losses["cross_entropy"]):
        def __call__(self, model, batch):
            loss_sum, count, facts = super().__call__(model, batch)
            return spoil(loss_sum), count, facts

    chosen = own_engine(Small, Spoilt)
    with pytest.raises(ConfigError, match=f"loss: returns .*{found}.* as its first value"):
        chosen.update(chosen.start(1), [BATCHES[0]])


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lambda *found: found[0], "gives a Tensor, but three values"),
        (lambda *found: found[:2], r"gives \(Tensor, int\), but three values"),
        (lambda loss, count, facts: (loss, None, facts), "gives a NoneType as count"),
        (lambda loss, count, facts: (loss, -count, facts), "gives the count -"),
        (lambda loss, count, facts: (loss, count, {"rare": torch.ones(2)}), r"gives a Tensor of shape \(2,\) as rare"),
    ],
)
def test_other_results_of_a_loss_are_refused_by_what_they_are(spoil, found):
    class Spoilt(losses["cross_entropy"]):
        def __call__(self, model, batch):
            return spoil(*super().__call__(model, batch))

    chosen = own_engine(Small, Spoilt)
    with pytest.raises(ConfigError, match=f"loss: {found}"):
        chosen.update(chosen.start(1), [BATCHES[0]])


def test_passes_in_a_list_and_predictions_that_are_none_are_refused_by_their_class(monkeypatch):
    class Silent(losses["cross_entropy"]):
        def predictions(self, model, batch):
            return None

    chosen = own_engine(Small, Silent)
    state = chosen.start(1)
    with pytest.raises(ConfigError, match=r"loss: 'Silent.predictions' returns NoneType. Return a dict"):
        chosen.score(state, BATCHES[0])
    monkeypatch.setattr(tasks["default"], "train_passes", lambda self, batch: [self.train_step(batch)])
    with pytest.raises(ConfigError, match=r"task: 'Task.train_passes' returns a list, not a generator"):
        chosen.update(state, [BATCHES[0]])


@pytest.mark.parametrize("nothing", [0, torch.tensor(0)])
def test_an_update_that_counts_nothing_has_a_gradient_of_zero(nothing):
    class Nothing(losses["cross_entropy"]):
        def __call__(self, model, batch):
            loss_sum, _, facts = super().__call__(model, batch)
            return 0.0 * loss_sum, nothing, facts

    chosen = own_engine(Small, Nothing, clip_norm=1.0)
    state, facts = chosen.update(chosen.start(1), [BATCHES[0]])
    assert chosen.facts_to_host(facts)["grad_norm"] == 0.0
    assert chosen.is_finite(state)


@pytest.mark.parametrize("factor", [math.nan, -1.0, None])
def test_a_schedule_that_gives_no_rate_is_refused_by_what_it_gives(factor):
    class Odd(lr_schedulers["constant"]):
        def factor(self, num_update):
            return np.float32(0.5) if num_update == 1 else factor

    chosen = engine()
    chosen._schedule = Odd(Odd.Parameters(), total_steps=9)
    state = train(chosen, chosen.start(1), [0])
    assert type(state.optimizer.param_groups[0]["lr"]) is float
    with pytest.raises(ConfigError, match=f"lr_scheduler: is Odd, whose factor of update 2 is {factor}"):
        train(chosen, state, [1])


@pytest.mark.parametrize("odd", [math.nan, -0.1, 1.0, "fast"])
def test_a_schedule_that_gives_no_momentum_is_refused_by_what_it_gives(odd):
    class Odd(lr_schedulers["constant"]):
        def momentum(self, num_update):
            return odd

    assert rates_of(lr_schedulers["constant"](None, total_steps=9), 1) == (1.0, None)
    with pytest.raises(ConfigError, match=f"is Odd, whose momentum of update 3 is {odd!r}"):
        rates_of(Odd(None, total_steps=9), 3)


def test_a_schedule_that_counts_its_calls_but_keeps_no_state_is_told_when_it_is_saved(capsys):
    class Counting(lr_schedulers["constant"]):
        calls = 0

        def factor(self, num_update):
            self.calls += 1
            return 0.5**self.calls

    class Keeping(Counting):
        def state_dict(self):
            return {"calls": self.calls}

    class Drawn(lr_schedulers["constant"]):
        def __init__(self, *given, **keys):
            super().__init__(*given, **keys)
            self.left = (0.5 for _ in range(9))

    for kind in (lr_schedulers["constant"], Keeping):
        schedule_state(kind(None, total_steps=9))
    assert "state_dict() is empty" not in capsys.readouterr().err
    for kind in (Counting, Drawn):
        assert schedule_state(kind(None, total_steps=9)) == {}
        assert f"lr_scheduler: {kind.__name__} gives other factors" in "".join(capsys.readouterr())


class Stepping(Small):
    """A network with a counter, as a plain number or in a buffer."""

    def __init__(self, *, buffer=False):
        super().__init__()
        self.width = 4
        self.step = 0
        if buffer:
            del self.step
            self.register_buffer("step", torch.zeros(()))

    def forward(self, tokens):
        self.step += 1
        return super().forward(tokens)


class DrawingItself(losses["cross_entropy"]):
    """A loss with a generator of its own."""

    def __init__(self, parameters):
        super().__init__(parameters)
        self.dice = random.Random(1)

    def __call__(self, model, batch):
        self.dice.random()
        return super().__call__(model, batch)


@pytest.mark.parametrize(
    ("make_model", "loss", "told"),
    [
        (Stepping, None, "Stepping.step changed during training, but no checkpoint keeps it"),
        (Small, DrawingItself, "DrawingItself.dice changed during training"),
        (lambda: Stepping(buffer=True), None, ""),
        (Small, None, ""),
    ],
)
def test_what_changes_but_is_not_saved_is_told_of(capsys, make_model, loss, told):
    chosen = own_engine(make_model, loss)
    state = chosen.start(1)
    chosen.snapshot(state)
    assert "no checkpoint keeps it" not in "".join(capsys.readouterr())
    chosen.snapshot(train(chosen, state, range(2)))
    shown = "".join(capsys.readouterr())
    assert told in shown
    assert ("no checkpoint keeps it" in shown) == bool(told)


class Forgetful(torch.optim.SGD):
    """An optimizer that keeps its momentum in a dict of its own, or where torch keeps it."""

    def __init__(self, groups, *, properly):
        super().__init__(groups)
        self.kept = {}
        self.properly = properly

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for weight in group["params"]:
                kept = self.state[weight] if self.properly else self.kept.setdefault(id(weight), {})
                kept["momentum"] = weight.grad + 0.9 * kept.get("momentum", 0.0)
                weight.sub_(group["lr"] * kept["momentum"])


@pytest.mark.parametrize("properly", [True, False])
def test_what_an_optimizer_keeps_elsewhere_than_in_its_state_is_told_of(capsys, properly):
    chosen = own_engine(Small)
    chosen._make_optimizer = lambda model: Forgetful(model.parameter_groups(0.05), properly=properly)
    chosen.snapshot(train(chosen, chosen.start(1), range(2)))
    shown = "".join(capsys.readouterr())
    assert ("optimizer: Forgetful keeps tensors in kept, which no checkpoint has" in shown) == (not properly)


class Hidden(Small):
    """A network whose middle layers stand in a plain list."""

    def __init__(self):
        super().__init__()
        self.middle = [nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)]

    def forward(self, tokens):
        found = self.table(tokens)
        for layer in self.middle:
            found = layer(found)
        return self.top(found.mean(dim=1))


class Plain(Small):
    """A network with a weight that is a plain tensor."""

    def __init__(self):
        super().__init__()
        self.scale = torch.randn(4, requires_grad=True)

    def forward(self, tokens):
        return self.top(self.scale * self.table(tokens).mean(dim=1))


class Perturbed(Small):
    """A network that adds noise with a gradient, as adversarial training does."""

    def forward(self, tokens):
        found = self.table(tokens).mean(dim=1)
        return self.top(found + torch.zeros_like(found).requires_grad_())


class Temperate(losses["cross_entropy"]):
    """A loss with a weight of its own."""

    def __init__(self, parameters):
        super().__init__(parameters)
        self.heat = nn.Parameter(torch.ones(1))

    def log_probabilities(self, logits):
        return super().log_probabilities(logits / self.heat)


@pytest.mark.parametrize(
    ("make_model", "loss", "told"),
    [
        (Hidden, None, "weights that are not trained (2, of shape (4, 4), (4, 4))"),
        (Small, Temperate, "weights that are not trained (1, of shape (1,))"),
        (Plain, None, "weights that are not trained (1, of shape (4,))"),
        (Perturbed, None, ""),
        (Small, None, ""),
    ],
)
def test_weights_that_the_optimizer_never_sees_are_told_of(capsys, make_model, loss, told):
    chosen = own_engine(make_model, loss)
    train(chosen, chosen.start(1), range(2))
    printed = capsys.readouterr()
    shown = printed.out + printed.err
    assert told in shown
    assert ("not trained" in shown) == bool(told)


def test_parts_that_come_in_evaluation_mode_train_from_the_first_update():
    def ready_made():
        model = Small()
        model.dropout.eval()  # as every model that transformers loads
        return model

    chosen = own_engine(ready_made)
    assert chosen.start(1).task.model.dropout.training


def test_a_learning_rate_that_the_schedule_overrules_is_told_of(capsys):
    chosen = engine()
    state = train(chosen, chosen.start(1), range(2))
    assert "lr_scheduler sets it again" not in capsys.readouterr().err
    for group in state.optimizer.param_groups:
        group["lr"] = 0.0
    train(chosen, state, range(2, 3))
    assert "lr_scheduler sets it again" in capsys.readouterr().err
