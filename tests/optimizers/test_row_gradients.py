import pytest
import torch
from torch import nn

from xdpx.engines.base import Task
from xdpx.engines.pytorch import gradients
from xdpx.engines.pytorch.engine import PyTorchEngine
from xdpx.engines.pytorch.gradients import gradients_of, use_row_gradients
from xdpx.engines.pytorch.options import EngineOptions
from xdpx.optimizers import optimizers


class Reader(nn.Module):
    def __init__(self, *, tied=False):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(50, 8, padding_idx=0)
        self.out = nn.Linear(8, 50, bias=False)
        if tied:
            self.out.weight = self.embedding.weight

    def forward(self, ids):
        return self.out(self.embedding(ids)).logsumexp(-1).sum()


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch):
    monkeypatch.setattr(gradients, "LARGE_EMBEDDING", 400)


def trained(name, *, rows, batches, micro_batches=1):
    model = Reader()
    kind = optimizers[name]
    chosen = kind(kind.Parameters(weight_decay=0.1), groups=[{"params": list(model.parameters()), "lr": 0.1}])
    if rows:
        use_row_gradients(model, chosen)
    norms = []
    for number, ids in enumerate(batches):
        model(ids).backward()
        if (number + 1) % micro_batches == 0:
            norms.append(torch.stack(torch._foreach_norm(gradients_of(chosen))).norm())
            chosen.grad_scale = torch.tensor(4.0)
            chosen.step()
            assert model.embedding.weight.grad.is_sparse == rows
            chosen.zero_grad()
    return model, torch.stack(norms)


@pytest.mark.parametrize("micro_batches", [1, 3])
@pytest.mark.parametrize("name", ["adam", "lamb"])
def test_rows_move_the_weights_as_dense_gradients_do(name, micro_batches):
    batches = torch.randint(0, 50, (6, 4, 5), generator=torch.Generator().manual_seed(1))
    dense, dense_norms = trained(name, rows=False, batches=batches, micro_batches=micro_batches)
    sparse, norms = trained(name, rows=True, batches=batches, micro_batches=micro_batches)
    assert torch.allclose(norms, dense_norms, rtol=1e-5)
    for mine, theirs in zip(sparse.parameters(), dense.parameters(), strict=True):
        assert torch.allclose(mine, theirs, atol=1e-6)


def test_rows_are_left_divided_like_other_gradients():
    ids = torch.tensor([[3, 3, 7]])
    found = []
    for rows in (False, True):
        model = Reader()
        chosen = optimizers["adam"](optimizers["adam"].Parameters(), groups=[{"params": list(model.parameters())}])
        if rows:
            use_row_gradients(model, chosen)
        model(ids).backward()
        chosen.grad_scale = torch.tensor(4.0)
        chosen.step()
        found.append(model.embedding.weight.grad.to_dense())
    assert torch.allclose(*found, atol=1e-7)


def test_only_large_plain_embeddings_of_a_willing_optimizer_give_rows(monkeypatch):
    willing = optimizers["adam"](optimizers["adam"].Parameters(), groups=[{"params": list(Reader().parameters())}])
    model = Reader(tied=True)
    use_row_gradients(model, willing)
    assert not model.embedding.sparse
    model = Reader()
    use_row_gradients(model, torch.optim.SGD(model.parameters(), lr=0.1))
    assert not model.embedding.sparse
    use_row_gradients(model, willing)
    assert model.embedding.sparse
    monkeypatch.setattr(gradients, "LARGE_EMBEDDING", 401)
    model = Reader()
    use_row_gradients(model, willing)
    assert not model.embedding.sparse


class Reading(Task):
    """A task on the reader: the loss is a sum over all targets."""

    def __init__(self):
        self.model = Reader()

    def train_step(self, batch):
        return self.model(batch["ids"]), batch["ids"].numel(), {}


@pytest.mark.parametrize("update_freq", [1, 3])
def test_with_rows_a_resumed_training_is_the_undisturbed_one_bit_for_bit(update_freq):
    def adam(model):
        rule = optimizers["adam"]
        return rule(rule.Parameters(), groups=[{"params": list(model.parameters()), "lr": 0.1}])

    def engine():
        options = EngineOptions(device="cpu", clip_norm=1.0, ema_decay=0.9)
        return PyTorchEngine(Reading, make_optimizer=adam, options=options)

    ids = torch.randint(0, 50, (8, update_freq, 4, 5), generator=torch.Generator().manual_seed(1))
    groups = [[{"ids": micro_batch} for micro_batch in group] for group in ids]
    straight, stopped, again = engine(), engine(), engine()
    state, half = straight.start(1), stopped.start(1)
    for group in groups:
        state, _ = straight.update(state, group)
    for group in groups[:4]:
        half, _ = stopped.update(half, group)
    resumed = again.restore(stopped.snapshot(half))
    for group in groups[4:]:
        resumed, _ = again.update(resumed, group)
    assert resumed.task.model.embedding.weight.grad.is_sparse
    ends = [chosen.weights(end) for chosen, end in ((straight, state), (again, resumed))]
    assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())
