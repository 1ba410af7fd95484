"""Training on noise: the gradients of FreeLB, FGM, PGD and SMART, by hand and by finite differences."""

import math

import pytest
import torch
from torch import nn

from xdpx.config.faults import ConfigError
from xdpx.engines.pytorch.engine import PyTorchEngine
from xdpx.engines.pytorch.options import EngineOptions
from xdpx.losses import losses
from xdpx.models import models
from xdpx.models.pytorch.modules.neftune import attach
from xdpx.optimizers import optimizers
from xdpx.tasks import tasks
from xdpx.tasks.noise import ascended, first_noise

ROWS = ([2, 5, 6, 3], [2, 7, 3], [2, 3], [2, 9, 8, 3])


class Smooth(nn.Module):
    takes_noise = True

    """Texts of two tokens at most, without dropout and in double precision, so that differences can be taken."""

    def __init__(self, share=0.0):
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(12, 3, padding_idx=0)
        self.out = nn.Linear(3, 2)
        self.share = share
        self.double()

    def get_input_embeddings(self):
        return self.table

    def forward(self, tokens, mask):
        hidden = nn.functional.dropout(torch.tanh(self.table(tokens)), self.share, self.training)
        return self.out((hidden * mask[..., None]).sum(dim=1))


class DoubleLoss:
    def __call__(self, model, batch):
        logits, target = model(**batch["net_input"]), batch["target"]
        right = (logits.argmax(-1) == target).sum()
        return nn.functional.cross_entropy(logits, target, reduction="sum"), len(target), {"correct": right}

    def state_dict(self):
        return {}

    def load_state_dict(self, saved):
        assert saved == {}


def words():
    tokens = torch.tensor([[1, 2, 3], [4, 5, 0]])
    return {"net_input": {"tokens": tokens, "mask": tokens != 0}, "target": torch.tensor([0, 1]), "ntokens": 5}


def classes(name="cross_entropy", **keys):
    kind = losses[name]
    return kind(kind.Parameters(num_classes=2, **keys))


def build(name, model=None, loss=None, **keys):
    kind = tasks[name]
    return kind(kind.Parameters(model="mine", loss="mine", **keys), model or Smooth(), loss or DoubleLoss())


def gradients(task, batch, update=1):
    """Do what the engine does with the passes of a batch."""
    task.model.train()
    task.model.zero_grad()
    task.begin_update(update)
    passes = task.train_passes(batch) if hasattr(task, "train_passes") else [task.train_step(batch)]
    total, count, facts = 0.0, 0, {}
    for loss_sum, more, found in passes:
        loss_sum.backward()
        total, count = total + float(loss_sum.detach()), count + more
        facts = {name: facts.get(name, 0) + float(value) for name, value in found.items()}
    return {name: each.grad.clone() for name, each in task.model.named_parameters()}, total, count, facts


def freelb_by_hand(model, batch, first, *, steps, rate, limit):
    """Algorithm 1 of the paper, word for word: K passes, each with its own graph. `first`: the first noise."""
    noise, sums, found_losses = first.clone(), None, []
    weights = list(model.parameters())
    tokens, mask = batch["net_input"]["tokens"], batch["net_input"]["mask"][..., None]
    for _ in range(steps):
        noise.requires_grad_()
        logits = model.out((torch.tanh(model.table(tokens) + noise) * mask).sum(dim=1))
        loss = nn.functional.cross_entropy(logits, batch["target"], reduction="sum")
        *found, up = torch.autograd.grad(loss, [*weights, noise])
        sums = [each / steps + (0 if sums is None else sums[index]) for index, each in enumerate(found)]
        found_losses.append(float(loss.detach()))
        noise = noise.detach() + rate * up / up.flatten(1).norm(dim=1)[:, None, None]
        size = noise.flatten(1).norm(dim=1)[:, None, None]
        noise = noise * (limit / size).clamp(max=1)
    return dict(zip(dict(model.named_parameters()), sums, strict=True)), sum(found_losses) / steps


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("steps", [1, 3])
def test_freelb_gathers_the_gradients_of_the_paper(steps, recompute):
    model, batch = Smooth(), words()
    task = build("freelb", model, adv_steps=steps, max_norm=0.3, recompute_emb=recompute)
    torch.manual_seed(7)
    found, total, count, facts = gradients(task, batch)
    torch.manual_seed(7)
    bottom = task.bottom_predict(batch)
    first = first_noise(bottom, task.masks(batch, bottom), 0.32, "l2")["tokens"]
    wanted, loss = freelb_by_hand(model, batch, first, steps=steps, rate=0.2, limit=0.3)
    assert all(torch.allclose(found[name], wanted[name], atol=1e-12) for name in wanted)
    assert (total, count) == (pytest.approx(loss), 2)
    assert 0 <= facts["correct"] <= 2


def test_freelb_gradient_agrees_with_finite_differences():
    """Noise is a constant to the gradient of a pass, so it is held where the ascent has put it."""
    model, batch, seen = Smooth(), words(), []
    task = build("freelb", model, adv_steps=2, orig_loss_proportion=0.25)
    upper = task.upper_predict

    def spy(batch, features):
        seen.append({name: (each - task.bottom_predict(batch)[name]).detach() for name, each in features.items()})
        return upper(batch, features)

    task.upper_predict = spy
    found = gradients(task, batch)[0]
    held = list(seen)

    def value():
        clean = task.loss(model, batch)[0]
        hurt = [upper(batch, {k: v + noise[k] for k, v in task.bottom_predict(batch).items()})[0] for noise in held]
        return float((0.25 * clean + 0.75 * sum(hurt) / 2).detach())

    for name, weight in model.named_parameters():
        flat, step = weight.data.view(-1), 1e-6
        for index in range(3, flat.numel() if name == "out.weight" else min(12, flat.numel())):
            before = float(flat[index])
            flat[index] = before + step
            above = value()
            flat[index] = before - step
            slope = (above - value()) / (2 * step)
            flat[index] = before
            assert float(found[name].view(-1)[index]) == pytest.approx(slope, abs=1e-7)


def test_without_steps_and_noise_freelb_is_plain_training():
    task, batch = build("freelb", rand_init_mag=0.0, adv_lr=0.0), words()
    found = gradients(task, batch)[0]
    task.model.zero_grad()
    task.loss(task.model, batch)[0].backward()
    assert all(torch.allclose(found[name], each.grad) for name, each in task.model.named_parameters())


def test_before_adv_begin_iter_training_is_plain():
    task = build("freelb", adv_begin_iter=5)
    task.begin_update(5)
    assert len(list(task.train_passes(words()))) == 1
    task.begin_update(6)
    assert not task.train_passes(words()).__next__()[0].isnan()
    assert task.noise_is_due


def test_noise_stays_inside_its_ball_and_off_the_padding():
    torch.manual_seed(0)
    feature = {"tokens": torch.zeros(2, 3, 4)}
    mask = {"tokens": torch.tensor([[1, 1, 1], [1, 0, 0]]).bool()[..., None]}
    for norm, order in (("l2", 2), ("linf", float("inf"))):
        noise = first_noise(feature, mask, 0.32, norm)
        assert not noise["tokens"][1, 1:].any()
        gradient = {"tokens": torch.randn(2, 3, 4) * mask["tokens"] * 1e-9}
        moved = ascended(noise, gradient, step=9.0, limit=0.5, norm=norm)["tokens"]
        assert torch.allclose(moved.flatten(1).norm(p=order, dim=1), torch.full((2,), 0.5))
        assert not moved[1, 1:].any()


def test_a_step_of_ascent_is_the_same_under_every_loss_scale_and_stays_where_a_gradient_overflows():
    noise, gradient = {"t": torch.zeros(2, 1, 2)}, torch.tensor([[[3.0, 4.0]], [[float("inf"), 1.0]]])
    for scale in (1.0, 1024.0):
        moved = ascended(noise, {"t": gradient * scale}, step=0.5, limit=0.0, norm="l2")["t"]
        assert torch.allclose(moved, torch.tensor([[[0.3, 0.4]], [[0.0, 0.0]]]))
    squared = ascended(noise, {"t": gradient}, step=0.5, limit=0.0, norm="linf", square=True)["t"]
    assert torch.allclose(squared[0, 0], torch.tensor([0.5 * 9 / 16, 0.5]))


def test_every_pass_drops_the_same_features_unless_told_otherwise():
    for apart in (False, True):
        task = build("freelb", Smooth(share=0.5), rand_init_mag=0.0, adv_lr=0.0, no_sync_dp=apart)
        task.begin_update(1)
        torch.manual_seed(3)
        found = []
        for loss_sum, _, _ in task.train_passes(words()):
            loss_sum.backward()
            found.append(float(loss_sum.detach()))
        assert (found[0] == pytest.approx(found[1])) is not apart


def test_fgm_adds_the_loss_one_step_up_the_gradient():
    model, batch = Smooth(), words()
    found, total, count, _ = gradients(build("fgm", model, adv_lr=0.7), batch)
    tokens, mask = batch["net_input"]["tokens"], batch["net_input"]["mask"][..., None]

    def loss_at(noise):
        logits = model.out((torch.tanh(model.table(tokens) + noise) * mask).sum(dim=1))
        return nn.functional.cross_entropy(logits, batch["target"], reduction="sum")

    still = torch.zeros(2, 3, 3, dtype=torch.double, requires_grad=True)
    up = torch.autograd.grad(loss_at(still), still)[0]
    noise = 0.7 * up / up.flatten(1).norm(dim=1)[:, None, None]
    whole = (loss_at(0.0) + loss_at(noise)) / 2
    wanted = torch.autograd.grad(whole, list(model.parameters()))
    assert (total, count) == (pytest.approx(float(whole)), 2)
    assert all(torch.allclose(a, b) for a, b in zip(found.values(), wanted, strict=True))


def test_one_step_of_pgd_in_a_wide_ball_is_fgm():
    fgm = gradients(build("fgm", adv_lr=0.3), words())[0]
    pgd = gradients(build("pgd", adv_lr=0.3, adv_steps=1, max_norm=0.0), words())[0]
    assert all(torch.allclose(fgm[name], pgd[name]) for name in fgm)


@pytest.mark.parametrize("keys", [{"adv_steps": 3}, {"adv_steps": 4, "rand_init_mag": 0.1, "norm_method": "linf"}])
def test_pgd_finds_noise_that_hurts_more_than_none(keys):
    _, total, _, _ = gradients(build("pgd", **keys), words())
    task = build("pgd")
    assert total > float(task.loss(task.model, words())[0])


def test_the_ascent_of_pgd_leaves_the_counts_of_a_loss_alone():
    task, batch = build("pgd", loss=classes("ghmc"), adv_steps=4), words()
    before = task.loss.state_dict()["counts"]
    task.attack(batch, {"tokens": torch.ones(2, 3, 3).double()}, task.dropout(batch))
    assert torch.equal(task.loss.state_dict()["counts"], before)


def test_smart_adds_nothing_for_noise_of_no_size_and_something_else():
    task, batch = build("smart", None, classes(), max_norm=1e-12, rand_init_mag=1e-12), words()
    clean = float(task.loss(task.model, batch)[0])
    assert gradients(task, batch)[1] == pytest.approx(clean)
    rough = build("smart", None, classes(), max_norm=0.5, adv_lr=0.5, smoothness_weight=2.0)
    _, total, count, facts = gradients(rough, batch)
    assert total == pytest.approx(clean + 2 * facts["smoothness"])
    assert facts["smoothness"] > 1e-3
    assert count == 2
    assert rough.train_metrics({**facts, "count": 2})["smoothness"] == pytest.approx(
        facts["smoothness"] / 2 / math.log(2)
    )


def test_smart_asks_the_loss_how_far_predictions_are_apart():
    found, *_ = gradients(build("smart", None, classes("bce"), max_norm=0.5, adv_lr=0.5), words())
    assert float(found["out.bias"][0]) == 0.0, "bce has no question for class 0"
    assert float(found["out.bias"][1]) != 0.0


def test_with_two_passes_smart_compares_with_the_first_whose_dropout_the_noisy_one_shares():
    keys = {"max_norm": 1e-12, "rand_init_mag": 1e-12}
    loss = classes(use_r_dropout=True)
    _, _, _, facts = gradients(build("smart", Smooth(share=0.5), loss, **keys), words())
    assert facts["kl_loss"] > 1e-4
    assert facts["smoothness"] == pytest.approx(0.0, abs=1e-9)


def test_smart_compares_passes_with_the_same_noise_of_neftune():
    model = Smooth()
    attach(model, 5.0)
    task = build("smart", model, classes(), max_norm=1e-12, rand_init_mag=1e-12)
    assert gradients(task, words())[3]["smoothness"] == pytest.approx(0.0, abs=1e-9)


def test_pgd_climbs_from_the_features_that_it_attacks():
    model = Smooth()
    attach(model, 5.0)
    task, seen = build("pgd", model, adv_steps=2), []
    bottom = task.bottom_predict
    task.bottom_predict = lambda batch: seen.append(bottom(batch)) or seen[-1]
    gradients(task, words())
    assert len(seen) == 3
    assert all(torch.equal(each["tokens"], seen[0]["tokens"]) for each in seen)


def test_the_noise_of_smart_is_bounded_entry_by_entry():
    assert tasks["smart"].Parameters(model="mine", loss="mine").norm_method == "linf"


@pytest.mark.parametrize("loss", ["circle_siamese", "bert_prompt_loss", "mse"])
def test_smart_refuses_a_loss_over_something_else_than_classes(loss):
    kind = losses[loss]
    with pytest.raises(ConfigError, match="does not define a distance"):
        build("smart", None, kind(kind.Parameters(**({"label_values": [0.0]} if loss == "mse" else {}))))


@pytest.mark.parametrize("name", ["freelb", "fgm", "pgd", "smart"])
def test_a_model_that_reads_texts_of_its_own_making_takes_no_noise(name):
    class Filling(Smooth):
        takes_noise = False

    assert not models["electra_pretrain"].takes_noise
    with pytest.raises(ConfigError, match="noise would not reach them"):
        build(name, Filling(), classes())


def test_a_squared_gradient_keeps_its_signs_and_the_length_of_the_step():
    gradient = torch.tensor([[[3.0, -4.0]]])
    moved = ascended({"a": gradient * 0}, {"a": gradient}, step=1.0, limit=0.0, norm="l2", square=True)["a"]
    assert torch.allclose(moved, torch.tensor([[[9.0, -16.0]]]) / (81 + 256) ** 0.5)


def test_a_model_that_looks_up_other_texts_is_refused_by_name():
    class Both(Smooth):
        def forward(self, tokens, mask):
            return super().forward(torch.cat([tokens, tokens]), torch.cat([mask, mask]))[: len(tokens)]

    task = build("freelb", Both())
    with pytest.raises(ConfigError, match="bottom_predict"):
        list(task.train_passes(words()))


# ---- through the engine, with BERT and with word vectors


def bert_batch(rows, targets):
    longest = max(map(len, ROWS))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
    net_input = {"input_ids": ids.numpy(), "attention_mask": (ids != 0).numpy()}
    return {"net_input": net_input, "target": torch.tensor(targets).numpy(), "ntokens": int((ids != 0).sum())}


def engine(task="freelb", *, dropout=0.0, precision="fp32", **keys):
    kind, loss, adam = models["bert_classification"], losses["cross_entropy"], optimizers["adam"]
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 16}
    known = kind.Parameters(
        pretrained_model=None, vocab_size=12, num_classes=2, max_position_embeddings=8, pad_index=0,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, **sizes,
    )  # fmt: skip
    return PyTorchEngine(
        lambda: build(task, kind(known), loss(loss.Parameters()), **keys),
        make_optimizer=lambda model: adam(adam.Parameters(), groups=model.parameter_groups(1e-2)),
        options=EngineOptions(device="cpu", seed=5, precision=precision),
    )


def same(first, second, **near):
    return all(torch.allclose(first[name], second[name], **near) for name in first)


@pytest.mark.parametrize("name", ["freelb", "fgm", "pgd", "smart"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_resumed_run_is_the_uninterrupted_one_bit_for_bit(name, precision):
    batch, chosen = bert_batch(ROWS, [0, 1, 0, 1]), engine(name, dropout=0.1, precision=precision)
    state = chosen.start(1)
    for _ in range(2):
        state, _ = chosen.update(state, [batch])
    saved = chosen.snapshot(state)
    for _ in range(2):
        state, facts = chosen.update(state, [batch])
    again = engine(name, dropout=0.1, precision=precision)
    other = again.restore(saved)
    for _ in range(2):
        other, _ = again.update(other, [batch])
    assert same(chosen.weights(state), again.weights(other), atol=0, rtol=0)
    assert (facts["num_tokens"], facts["count"]) == (13, 4)


def test_accumulated_micro_batches_are_one_batch():
    keys = {"rand_init_mag": 0.0}
    whole, parts = engine(**keys), engine(**keys)
    one, _ = whole.update(whole.start(1), [bert_batch(ROWS, [0, 1, 0, 1])])
    two, _ = parts.update(parts.start(1), [bert_batch(ROWS[:2], [0, 1]), bert_batch(ROWS[2:], [0, 1])])
    assert same(grads(one), grads(two), atol=1e-6)


def grads(state):
    return {name: each.grad for name, each in state.task.model.named_parameters()}


def test_noise_changes_the_gradient_and_padding_does_not():
    keys = {"rand_init_mag": 0.0}
    short = bert_batch(ROWS[1:3], [1, 0])
    cut = {name: each[:, :3] for name, each in short["net_input"].items()}
    found = {}
    for name, batch in {"padded": short, "cut": {**short, "net_input": cut}}.items():
        chosen = engine(adv_steps=3, **keys)
        found[name] = grads(chosen.update(chosen.start(1), [batch])[0])
    assert same(found["padded"], found["cut"], atol=1e-6)
    plain = engine("default")
    assert not same(found["cut"], grads(plain.update(plain.start(1), [short])[0]), atol=1e-4)


@pytest.mark.parametrize(
    ("keys", "idle"),
    [
        ({"adv_steps": 1, "rand_init_mag": 0.0}, ["adv_steps"]),
        ({"orig_loss_proportion": 1.0}, ["orig_loss_proportion"]),
        ({"adv_steps": 1}, []),
        ({"rand_init_mag": 0.0}, []),
    ],
)
def test_freelb_whose_passes_have_no_noise_is_told(keys, idle):
    assert list(build("freelb", **keys).idle_keys()) == idle
