"""`trainer.accelerator` beside accelerate's own object: each public name is answered alike, or refused with advice."""

from __future__ import annotations

import copy
import pickle
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from torch.utils.data import DataLoader, Dataset

import xdpx
from xdpx.engines.pytorch.precision import Precision
from xdpx.engines.pytorch.world import World
from xdpx.trainer.accelerator import INSTEAD, PLUGINS, Accelerator, DistributedType

accelerate = pytest.importorskip("accelerate")

OF_THE_RUN = {"project_configuration", "rng_types", "step", "gradient_state", "dataloader_config", "state", "device"}


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        return {"loss": (self.weight * x).mean(), "logits": self.weight * x}


class Numbers(Dataset[dict[str, Any]]):
    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": float(index)}


def trainer(library: Any, folder: Path, **changes: Any) -> Any:
    given: dict[str, Any] = {"use_cpu": True, "disable_tqdm": True, "save_strategy": "no", "report_to": "none"}
    return library.Trainer(
        Line(), library.TrainingArguments(str(folder), **{**given, **changes}), train_dataset=Numbers()
    )


def of_rank(rank: int, size: int, strategy: Any = None) -> Accelerator:
    class Whole:
        shards = writes_own_state = False

    device = torch.device("cpu")
    world = World(rank, size, rank, size, 0, device, "distributed" if size > 1 else "single")
    return Accelerator(world, strategy or Whole(), Precision("no", device), lambda loader, **_: loader, settings())


def settings() -> Any:
    return xdpx.TrainingArguments("out", use_cpu=True).accelerator_config


def public(thing: Any) -> list[str]:
    return [name for name in dir(thing) if not name.startswith("_")]


def test_every_public_name_of_accelerate_is_answered_or_refused_with_what_to_do(tmp_path: Path) -> None:
    ours, theirs = trainer(xdpx, tmp_path).accelerator, accelerate.Accelerator(cpu=True)
    for name in public(theirs):
        if name in INSTEAD and name not in PLUGINS:
            with pytest.raises(AttributeError, match=re.escape(INSTEAD[name])):
                getattr(ours, name)
        else:
            assert hasattr(ours, name), name


def test_no_name_is_listed_that_accelerate_does_not_have() -> None:
    theirs = accelerate.Accelerator(cpu=True)
    assert not [name for name in INSTEAD if name != "fsdp_plugin" and name not in public(theirs)]


@pytest.mark.parametrize("changes", [{}, {"gradient_accumulation_steps": 2}, {"bf16": True}])
def test_what_it_says_is_what_the_original_s_says(changes: dict[str, Any], tmp_path: Path) -> None:
    theirs = trainer(transformers, tmp_path, **changes).accelerator
    ours = trainer(xdpx, tmp_path, **changes).accelerator
    for name in sorted(set(public(theirs)) - (INSTEAD.keys() - PLUGINS.keys()) - OF_THE_RUN):
        value = getattr(theirs, name)
        assert callable(value) or getattr(ours, name) == value, name
    for name in ("split_batches", "dispatch_batches", "even_batches", "use_seedable_sampler", "non_blocking"):
        assert getattr(ours.dataloader_config, name) == getattr(theirs.dataloader_config, name)
    for name in ("num_processes", "distributed_type", "deepspeed_plugin", "fsdp_plugin", "mixed_precision"):
        assert getattr(ours.state, name, None) == getattr(theirs.state, name, None), name
    assert ours.gradient_state.num_steps == theirs.gradient_state.num_steps
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def test_kinds_of_spreading_are_equal_to_accelerate_s_own() -> None:
    for kind in DistributedType:
        assert kind == accelerate.DistributedType[kind.name]


def test_only_the_process_that_is_meant_does_something() -> None:
    for rank in range(2):
        here, did = of_rank(rank, 2), []
        here.on_main_process(did.append)("main")
        here.on_last_process(did.append)("last")
        here.on_process(did.append, process_index=1)("second")
        here.on_process(process_index=0)(did.append)("first")
        here.on_local_process(local_process_index=1)(did.append)("second here")
        assert did == (["main", "first"] if rank == 0 else ["last", "second", "second here"])
        assert here.use_distributed
        assert here.distributed_type == "MULTI_CPU"


def test_where_layers_are_sharded_nothing_is_passed_off_as_absent() -> None:
    class Sharded:
        shards, writes_own_state = True, False

    with pytest.raises(AttributeError, match="fsdp_options"):
        _ = of_rank(0, 2, Sharded()).state.fsdp_plugin
    assert of_rank(0, 2, Sharded()).state.deepspeed_plugin is None


def test_what_a_script_sets_stays_and_holds_for_loaders(tmp_path: Path) -> None:
    made = trainer(xdpx, tmp_path)
    second_of_two = World(1, 2, 1, 2, 0, torch.device("cpu"), "distributed")
    made._run.parts = replace(made._run.parts, world=second_of_two)
    made.accelerator.even_batches = False
    assert made.accelerator.even_batches is made.accelerator.dataloader_config.even_batches is False
    shared = made.accelerator.prepare(DataLoader(Numbers(), batch_size=3))
    assert len(list(shared)) == 1
    assert [len(batch["x"]) for batch in made.get_train_dataloader()] == [1]  # not filled up from the start
    assert made.args.accelerator_config.even_batches


def test_gradients_are_exchanged_after_the_last_micro_batch_and_a_callback_sees_it(tmp_path: Path) -> None:
    seen = []

    class Watching(xdpx.Trainer):
        def training_step(self, *given: Any) -> torch.Tensor:
            seen.append(self.accelerator.sync_gradients)
            return super().training_step(*given)

    args = xdpx.TrainingArguments(
        str(tmp_path), use_cpu=True, gradient_accumulation_steps=2, max_steps=2, per_device_train_batch_size=2,
        disable_tqdm=True,
    )  # fmt: skip
    Watching(Line(), args, train_dataset=Numbers()).train()
    assert seen == [False, True, False, True]


def test_it_can_be_copied_and_sent_to_another_process(tmp_path: Path) -> None:
    accelerator = trainer(xdpx, tmp_path).accelerator
    assert copy.deepcopy(accelerator).num_processes == pickle.loads(pickle.dumps(accelerator)).num_processes == 1  # noqa: S301


def test_a_step_that_was_left_out_is_told() -> None:
    precision = Precision("no", torch.device("cpu"))
    weight = nn.Parameter(torch.ones(1))
    precision.leave_out()
    assert precision.skipped
    precision.step(torch.optim.SGD([weight], lr=0.1), 1)
    assert not precision.skipped


def test_the_backward_pass_takes_the_options_of_torch_and_clipping_refuses_another_norm() -> None:
    weight, ours = torch.tensor(3.0, requires_grad=True), of_rank(0, 1)
    loss = weight**2
    ours.backward(loss, retain_graph=True, learning_rate=0.1)
    ours.backward(loss, create_graph=True)
    assert weight.grad is not None
    assert (float(weight.grad.detach()), weight.grad.requires_grad) == (12.0, True)
    with pytest.raises(ValueError, match="norm_type is 1"):
        ours.clip_grad_norm_([weight], 1.0, 1)
