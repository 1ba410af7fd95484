import os
from dataclasses import dataclass, field
from unittest import mock

import pytest
import torch
from torch import nn

from xdpx.config.faults import ConfigError
from xdpx.engines.base import Task
from xdpx.engines.pytorch import kernels
from xdpx.engines.pytorch.engine import PyTorchEngine
from xdpx.engines.pytorch.options import EngineOptions
from xdpx.losses import losses
from xdpx.runs.assembly import _refuse_hooks
from xdpx.tasks import tasks

IDS = torch.arange(10).view(2, 5)


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table, self.top = nn.Embedding(20, 4), nn.Linear(4, 3)

    def forward(self, ids):
        return self.top(self.table(ids))


@pytest.fixture
def switches():
    """Put back what is the process's own."""
    precision, allowed = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    benchmark, deterministic = torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic
    with mock.patch.dict(os.environ):
        yield
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.allow_tf32 = allowed
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = benchmark, deterministic
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(("wanted", "precision"), [(True, "high"), (False, "highest")])
def test_tf32_holds_for_products_and_for_convolutions(wanted, precision, switches):
    PyTorchEngine(Counting(), options=EngineOptions(device="cpu", tf32=wanted))
    assert torch.get_float32_matmul_precision() == precision
    assert torch.backends.cudnn.allow_tf32 is wanted


def test_unset_tf32_leaves_pytorch_as_it_is(switches):
    torch.set_float32_matmul_precision("medium")
    kernels.use_tf32(None)
    assert torch.get_float32_matmul_precision() == "medium"


@pytest.mark.parametrize(
    "door",
    [
        lambda: PyTorchEngine(Counting(), options=EngineOptions(device="cpu", deterministic=True)),
        lambda: kernels.seed_training(1, full_determinism=True),
    ],
)
def test_both_doors_require_the_same_kernels(door, switches):
    door()
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.is_deterministic_algorithms_warn_only_enabled()
    assert torch.backends.cudnn.deterministic
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


@dataclass
class Counting(Task):
    """Sums a loss over all tokens."""

    model: nn.Module = field(default_factory=Small)

    def train_step(self, batch):
        return self.model(batch["ids"]).logsumexp(-1).sum(), batch["ids"].numel(), {}


def losses_of(compiled):
    graphs = []

    def counting(graph, inputs):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    with mock.patch.object(torch.compiler, "list_backends", return_value=["counting", "eager"]):
        if compiled:
            torch._dynamo.register_backend(counting, name="counting")
        engine = PyTorchEngine(
            Counting(),
            make_optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
            options=EngineOptions(device="cpu", compile="counting" if compiled else None),
        )
        state, found = engine.start(1), []
        for rows, width in [(4, 8), (4, 16), (3, 24), (5, 32), (4, 40), (2, 48), (6, 56), (5, 64), (3, 12), (7, 20)]:
            state, facts = engine.update(state, [{"ids": torch.arange(rows * width).view(rows, width) % 20}])
            found.append(float(facts["loss_sum"]))
    return found, len(graphs)


def test_batches_of_many_lengths_are_compiled_once_and_learn_the_same():
    compiled, num_graphs = losses_of(compiled=True)
    assert num_graphs == 1
    plain, none = losses_of(compiled=False)
    assert (compiled, none) == (pytest.approx(plain, rel=1e-6), 0)


@pytest.mark.parametrize(
    ("task", "loss"), [("freelb", "cross_entropy"), ("default", "minilm"), ("default", "tinybert")]
)
def test_what_hooks_onto_a_model_is_not_compiled(task, loss):
    class Run:
        values = {"task": task, "loss": loss}

        @staticmethod
        def picked(kind):
            return tasks[task]

    class Settings:
        compile = True

    with pytest.raises(ConfigError, match="hooks onto parts of the model"):
        _refuse_hooks(Run, Settings, losses[loss])
    Settings.compile = False
    _refuse_hooks(Run, Settings, losses[loss])


def test_a_compiled_model_stays_the_same_object_with_the_same_names_and_numbers():
    model = Small().eval()
    expected, names = model(IDS), list(model.state_dict())
    assert kernels.compile_in_place(model, backend="eager") is model
    assert list(model.state_dict()) == names
    assert torch.allclose(model(IDS), expected, atol=1e-6)
    assert model._compiled_call_impl is not None


@pytest.mark.parametrize(
    ("backend", "mode", "message"),
    [
        ("inductr", None, "there is no 'inductr'. Did you mean 'inductor'"),
        (None, "fast", "torch_compile_mode: there is no"),
    ],
)
def test_a_backend_or_mode_that_does_not_exist_is_refused(backend, mode, message):
    with pytest.raises(ValueError, match=message):
        kernels.compile_in_place(nn.Linear(2, 2), backend, mode)
