"""Checks on two real processes of `test_strategies.py`: `two_processes.py <folder> [name ...]`, started by a launcher.

With `--fork` it starts both itself, off one that has imported everything. Every function named `check_...` runs on
both; its outcome is written to `<folder>/<name>.<rank>`.
"""

from __future__ import annotations

import sys
import traceback
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from tests.preloaded import SHARDING, import_before_forking
from tests.processes import fork_ranks
from xdpx.engines.base import Task
from xdpx.engines.pytorch import collectives, world
from xdpx.engines.pytorch.averaging import AverageInPlace
from xdpx.engines.pytorch.engine import PyTorchEngine
from xdpx.engines.pytorch.options import AveragingOptions, EngineOptions
from xdpx.engines.pytorch.precision import Precision
from xdpx.engines.pytorch.strategies import DdpOptions, Distributed, Replicated, Sharded, Single, choose
from xdpx.engines.pytorch.strategies.blocks import BlockOptions, Blocks, mean_of_states
from xdpx.engines.pytorch.strategies.shard_files import read_whole
from xdpx.optimizers import optimizers

OUT = Path()
WIDTH, WORDS = 8, 11
ALONE = world.World(0, 1, 0, 1, 0, torch.device("cpu"), "single")


@dataclass(frozen=True)
class Options:
    strategy: str = "full_shard"
    offload: bool = False
    wrap: str = "none"
    layer_classes: tuple[str, ...] = ()
    min_num_params: int = 0
    activation_checkpointing: bool = False
    state_dict_type: str = "FULL_STATE_DICT"
    reshard_after_forward: bool = True
    ignored_modules: str | None = None
    xla: None = None


class Layer(nn.Module):
    passes = 0

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, values):
        Layer.passes += 1
        return values + torch.tanh(self.linear(values))


class Small(nn.Module):
    """A model with sizes that two does not divide, a buffer and, optionally, tied weights."""

    def __init__(self, tied=False, seed=3):
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList([Layer(), Layer()])
        self.head = nn.Linear(WIDTH, WORDS, bias=not tied)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, WIDTH))
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, tokens):
        values = self.embed(tokens) * self.scale
        for layer in self.layers:
            values = layer(values)
        return self.head(values)

    def generate(self, tokens):
        for _ in range(3):
            best = self(tokens)[:, -1].argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, best], dim=1)
        return tokens, self.head(self.embed(tokens))  # parts, called without the whole


def batch(step, rank=None):
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, WORDS, (4, 6), generator=generator)
    return tokens if rank is None else tokens[rank * 2 : rank * 2 + 2]


def loss_of(model, tokens):
    return nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def adamw(model, **settings):
    return torch.optim.AdamW(model.parameters(), **{"lr": 0.05, "eps": 1e-4, **settings})


def train(strategy, model, optimizer, steps=range(4), rank=None, max_norm=0.3, parts=1):
    """Return the norms of all steps."""
    norms = []
    for step in steps:
        for index in range(parts):
            last = index == parts - 1
            tokens = batch(step, rank)
            tokens = tokens.chunk(parts)[index]
            with strategy.accumulating(model, last):
                (loss_of(model, tokens) / parts).backward()
        norms.append(float(strategy.clip(list(model.parameters()), max_norm)))
        optimizer.step()
        optimizer.zero_grad()
    return norms


def one_process(steps=range(4), tied=False, make=adamw, max_norm=0.3):
    model = Small(tied)
    optimizer = make(model)
    norms = train(Single(ALONE), model, optimizer, steps, max_norm=max_norm)
    return model, optimizer, norms


def here():
    return world.current(use_cpu=True)


def same(first, second, tolerance=1e-6):
    assert first.keys() == second.keys(), (first.keys(), second.keys())
    for name, value in first.items():
        assert torch.allclose(value, second[name], rtol=0, atol=tolerance), (name, value, second[name])


def follows_one_process(strategy, tied=False, parts=1):
    """Train with a strategy and compare with one process; return the prepared model and its optimizer."""
    model = strategy.prepare(Small(tied, seed=3 + strategy.world.rank))  # all start with those of the first process
    optimizer = adamw(model)
    norms = train(strategy, model, optimizer, rank=strategy.world.rank, parts=parts)
    alone, _, expected = one_process(tied=tied)
    assert torch.allclose(torch.tensor(norms), torch.tensor(expected), rtol=1e-5, atol=1e-6), (norms, expected)
    found = strategy.weights(model)
    if strategy.world.is_main:
        same(found, dict(alone.state_dict()))
    else:
        assert found == {}
    return model, optimizer


def sharded(**options):
    return Sharded(here(), Options(**options))


def shares(model):
    return {name: tuple(each.to_local().shape) for name, each in model.named_parameters() if isinstance(each, DTensor)}


def units(model):
    return {name for name, module in model.named_modules() if type(module).__name__.startswith("FSDP")}


def check_the_world_is_read_from_the_launcher():
    found = here()
    assert (found.size, found.local_size, found.node, found.mode) == (2, 2, 0, "distributed")
    assert found.rank == found.local_rank == dist.get_rank()
    assert found.is_main == found.is_local_main == (found.rank == 0)
    assert found.device == torch.device("cpu")
    assert found is here()


def check_two_machines_have_one_process_each():
    found = here()
    assert (found.size, found.local_size, found.local_rank) == (2, 1, 0)
    assert found.node == found.rank == dist.get_rank()
    assert collectives.gather_objects(found.is_local_main) == [True, True]


def check_ddp_equals_one_process():
    model, _ = follows_one_process(choose(here()))
    assert isinstance(model, DistributedDataParallel)


def check_ddp_options_reach_ddp():
    options = DdpOptions(find_unused_parameters=False, bucket_cap_mb=3, broadcast_buffers=False, static_graph=True)
    model = Distributed(here(), options).prepare(Small())
    assert (model.find_unused_parameters, model.broadcast_buffers, model.static_graph) == (False, False, True)
    assert model.bucket_bytes_cap == 3 << 20
    assert Distributed(here()).prepare(Small()).find_unused_parameters


def check_ddp_asks_a_model_for_the_flag_that_its_transformers_has():
    class Former(Small):
        is_gradient_checkpointing = True

    class Todays(Former):
        is_activation_checkpointing = False

        @property
        def is_gradient_checkpointing(self):
            raise FutureWarning

    assert not Distributed(here()).prepare(Former()).find_unused_parameters
    assert Distributed(here()).prepare(Todays()).find_unused_parameters


def check_ddp_leaves_a_model_without_training_as_it_is():
    model = Small().requires_grad_(requires_grad=False)
    assert Distributed(here()).prepare(model) is model


def check_ddp_averages_gradients_of_weights_that_were_frozen_when_it_wrapped_the_model():
    strategy, layers = Distributed(here()), nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    layers[0].requires_grad_(False)
    model = strategy.prepare(layers)
    layers.requires_grad_(True)
    with strategy.accumulating(model, last=True):
        model(torch.full((1, 2), 1.0 + here().rank)).sum().backward()
    own = layers[0].weight.grad.tolist()
    strategy.sum_gradients(list(model.parameters()))
    mean = torch.tensor(collectives.gather_objects(own)).mean(0)
    assert torch.allclose(layers[0].weight.grad, mean)
    assert collectives.gather_objects(layers[1].weight.grad.tolist()) == [layers[1].weight.grad.tolist()] * 2


def check_ddp_averages_gradients_of_a_loss_that_calls_the_model_without_it():
    strategy = Distributed(here())
    model = strategy.prepare(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 1)))
    for wrapped in (False, True):  # the second time as usual, after which nothing is left to average
        model.zero_grad()
        with strategy.accumulating(model, last=False):
            model(torch.full((2, 2), 3.0 + here().rank)).sum().backward()
        with strategy.accumulating(model, last=True):
            with torch.no_grad():
                model(torch.zeros(2, 2))
            (model if wrapped else model.module)(torch.eye(2) + here().rank).sum().backward()
        own = [each.grad.tolist() for each in model.parameters()]
        strategy.sum_gradients(list(model.parameters()))
        of_all = zip(*collectives.gather_objects(own), strict=True)
        for weight, theirs in zip(model.parameters(), of_all, strict=True):
            assert torch.allclose(weight.grad, torch.tensor(theirs).mean(0))
        mean = model.module[1].running_mean.tolist()
        assert wrapped or collectives.gather_objects(mean) == [mean] * 2


def accumulated_gradients(strategy):
    """Return the gradients of the first layer after each of two micro-batches."""
    model = strategy.prepare(Small())
    first = strategy.unwrap(model).layers[0].linear
    seen = []
    for index in range(2):
        with strategy.accumulating(model, last=index == 1):
            (loss_of(model, batch(0, here().rank).chunk(2)[index]) / 2).backward()
        seen.append(first.weight.grad)
    return seen


def check_ddp_exchanges_gradients_with_the_last_micro_batch_alone():
    strategy = Distributed(here())
    model = strategy.prepare(Small())
    weight = strategy.unwrap(model).head.weight
    for last in (False, True):
        with strategy.accumulating(model, last):
            loss_of(model, batch(0, here().rank)).backward()
        both = collectives.gather_objects(weight.grad)
        assert torch.equal(*both) == last
    follows_one_process(Distributed(here()), parts=2)


def check_shards_exchange_gradients_with_the_last_micro_batch_alone():
    before, after = accumulated_gradients(sharded())
    assert before is None
    assert isinstance(after, DTensor)
    follows_one_process(sharded(), parts=2)


def check_full_shard_equals_one_process_and_halves_what_each_holds():
    strategy = sharded()
    model, optimizer = follows_one_process(strategy)
    rows = (6, 5)[here().rank]
    assert shares(model)["embed.weight"] == (rows, WIDTH)
    assert len(shares(model)) == len(list(model.parameters()))
    assert strategy.unwrap(model) is model
    assert strategy.shards
    moments = optimizer.state[model.embed.weight]["exp_avg"]
    assert tuple(moments.to_local().shape) == (rows, WIDTH)


def check_shard_grad_op_keeps_gathered_weights_until_the_backward_pass():
    strategy = sharded(
        strategy="shard_grad_op", reshard_after_forward=False, wrap="transformer", layer_classes=("Layer",)
    )
    model, _ = follows_one_process(strategy)
    loss = loss_of(model, batch(0))
    assert not isinstance(model.layers[0].linear.weight, DTensor)
    loss.backward()
    assert isinstance(model.layers[0].linear.weight, DTensor)
    with torch.no_grad():
        model(batch(0))
    assert all(isinstance(each, DTensor) for each in model.parameters())
    full = sharded(wrap="transformer", layer_classes=("Layer",))
    model = full.prepare(Small())
    loss_of(model, batch(0))
    assert isinstance(model.layers[0].linear.weight, DTensor)


def check_no_shard_is_ddp():
    strategy = choose(here(), fsdp=Options(strategy="no_shard"))
    assert isinstance(strategy, Distributed)
    follows_one_process(strategy)


def check_no_shard_with_offload_keeps_whole_weights_on_the_host():
    strategy = choose(here(), fsdp=Options(strategy="no_shard", offload=True))
    model, _ = follows_one_process(strategy)
    assert shares(model)["embed.weight"] == (WORDS, WIDTH)


def check_offload_equals_one_process():
    model, _ = follows_one_process(sharded(offload=True))
    assert model.embed.weight.to_local().device.type == "cpu"


def check_hybrid_shard_on_one_machine_shards_within_it():
    model, _ = follows_one_process(sharded(strategy="hybrid_shard"))
    assert shares(model)["embed.weight"][0] < WORDS


def check_hybrid_shard_over_two_machines_replicates():
    each_its_machine = replace(here(), local_rank=0, local_size=1, node=here().rank)
    model, _ = follows_one_process(Sharded(each_its_machine, Options(strategy="hybrid_shard")))
    assert shares(model)["embed.weight"] == (WORDS, WIDTH)


def check_layers_become_units_by_class():
    model, _ = follows_one_process(sharded(wrap="transformer", layer_classes=("Layer",)))
    assert units(model) == {"", "layers.0", "layers.1"}


def check_layers_become_units_by_what_the_model_says():
    model = Small()
    model._no_split_modules = ["Layer"]
    assert units(sharded(wrap="transformer").prepare(model)) == {"", "layers.0", "layers.1"}


def check_modules_become_units_by_size():
    model, _ = follows_one_process(sharded(wrap="size", min_num_params=80))
    assert units(model) == {"", "embed", "head"}  # a layer has 72
    model = sharded(wrap="size", min_num_params=144).prepare(Small())
    assert units(model) == {""}  # the list of layers has as many, but no forward pass
    model = sharded(wrap="size", min_num_params=72).prepare(Small())
    assert units(model) == {"", "embed", "head", "layers.0.linear", "layers.1.linear"}


def check_tied_weights_stay_tied_whatever_the_units():
    model, _ = follows_one_process(sharded(wrap="size", min_num_params=80), tied=True)
    assert units(model) == {""}
    assert model.head.weight is model.embed.weight
    weights = sharded().weights(model, wanted=True)
    assert weights["head.weight"] is weights["embed.weight"]


def check_an_unknown_layer_is_refused_with_those_there_are():
    with pytest.raises(ValueError) as caught:
        sharded(wrap="transformer", layer_classes=("Block",)).prepare(Small())
    assert "names Block" in str(caught.value)
    assert "Layer" in str(caught.value)


def check_activations_are_computed_again():
    strategy = sharded(wrap="transformer", layer_classes=("Layer",), activation_checkpointing=True)
    Layer.passes = 0
    model, _ = follows_one_process(strategy)
    assert Layer.passes == 4 * 2 * 2 + 4 * 2  # twice here, once alone
    Layer.passes = 0
    with torch.no_grad():
        model(batch(0))
    assert Layer.passes == 2
    assert "layers.0.linear.weight" in dict(model.named_parameters())


def check_ignored_modules_stay_whole_and_are_averaged():
    model, _ = follows_one_process(sharded(ignored_modules=r"layers\.\d+"))
    assert "layers.0.linear.weight" not in shares(model)
    follows_one_process(sharded(ignored_modules=r"head"), parts=2)


def check_single_numbers_are_kept_whole():
    class Scaled(Small):
        def __init__(self):
            super().__init__()
            self.factor = nn.Parameter(torch.tensor(1.5))

        def forward(self, tokens):
            return super().forward(tokens) * self.factor

    strategy, alone = sharded(), Scaled()
    model = strategy.prepare(Scaled())
    optimizer, expected = adamw(model), adamw(alone)
    norms = train(strategy, model, optimizer, rank=here().rank)
    assert torch.allclose(torch.tensor(norms), torch.tensor(train(Single(ALONE), alone, expected)), atol=1e-6)
    same(strategy.weights(model, wanted=True), dict(alone.state_dict()))
    strategy.sharded_save(str(folder("numbers")), model, optimizer)
    other = strategy.prepare(Scaled())
    strategy.sharded_load(str(OUT / "numbers"), other, adamw(other))
    same(strategy.weights(other, wanted=True), dict(alone.state_dict()))


def check_the_norm_is_that_of_all_shards_and_zero_clips_nothing():
    for strategy in (Distributed(here()), sharded()):
        model = strategy.prepare(Small())
        loss_of(model, batch(0, here().rank)).backward()
        parameters = list(model.parameters())
        first, second = strategy.clip(parameters, 0.0), strategy.clip(parameters, 0.01)
        third = strategy.clip(parameters, 0.0)
        assert first.dim() == 0
        assert torch.equal(first, second)
        assert torch.allclose(third, torch.tensor(0.01), rtol=1e-3)
    assert float(sharded().clip([], 1.0)) == 0.0


def check_bf16_gathers_in_bf16_and_keeps_float32_shards():
    strategy = Sharded(here(), Options(), "bf16")
    precision = Precision("bf16", torch.device("cpu"))
    model = Small()
    precision.attach(model)
    model = strategy.prepare(model)
    optimizer = adamw(model)
    logits = model(batch(0, here().rank))
    assert logits.dtype == torch.float32
    train(strategy, model, optimizer, rank=here().rank)
    assert model.embed.weight.dtype == torch.float32
    alone, _, _ = one_process()
    same(strategy.weights(model, wanted=True), dict(alone.state_dict()), tolerance=0.1)


def check_an_overflow_in_one_shard_skips_the_step_on_all_processes():
    for strategy in (sharded(), sharded(offload=True), Distributed(here())):
        precision = Precision("fp16", torch.device("cpu"))
        model = Small()
        precision.attach(model)
        model = strategy.prepare(model)
        optimizer = adamw(model)
        for broken in (False, True):
            precision.backward(loss_of(model, batch(0, here().rank)))
            first = strategy.unwrap(model).embed.weight.grad
            if broken and isinstance(first, DTensor) and here().is_main:
                first.to_local()[0, 0] = float("inf")
            elif broken and not isinstance(first, DTensor):
                first[0, 0] = float("inf")
            before = strategy.weights(model, wanted=True)["embed.weight"].clone()
            precision.unscale(optimizer)
            norm = strategy.clip(list(model.parameters()), 1.0)
            assert bool(norm.isfinite()) != broken
            assert precision.step(optimizer, 1) == broken
            optimizer.zero_grad()
            assert torch.equal(strategy.weights(model, wanted=True)["embed.weight"], before) == broken
        scales = collectives.gather_objects(precision.scaler.get_scale())
        assert scales == [32768.0, 32768.0]


def check_generation_gathers_the_parts_that_it_calls():
    model = sharded(wrap="size", min_num_params=80).prepare(Small().eval())
    tokens = batch(0)[:, :3]
    with torch.no_grad():
        found, expected = model.generate(tokens), Small().eval().generate(tokens)
    assert torch.equal(found[0], expected[0])
    assert torch.allclose(found[1], expected[1], atol=1e-6)


def check_whole_weights_go_into_shards_from_the_first_process():
    for strategy in (sharded(offload=True), Distributed(here())):
        model = strategy.prepare(Small(seed=9))
        wanted = dict(Small().state_dict())
        given = wanted if here().is_main else {}
        assert strategy.load_weights(model, given, strict=True) == ([], [])
        same(strategy.weights(model, wanted=True), wanted)
        model = strategy.prepare(Small(seed=9))
        strategy.load_weights(model, wanted)  # every process brings them
        same(strategy.weights(model, wanted=True), wanted)


def check_missing_and_unknown_names_are_told_on_all_processes():
    strategy = sharded()
    model = strategy.prepare(Small(tied=True))
    weights = {name: each for name, each in Small(tied=True).state_dict().items() if name != "head.weight"}
    assert strategy.load_weights(model, weights) == ([], [])  # it is tied to one that is there
    del weights["scale"]
    weights["other"] = torch.zeros(2)
    given = weights if here().is_main else {}
    assert strategy.load_weights(model, given) == (["scale"], ["other"])
    for broken in (given, given | ({"scale": torch.zeros(3)} if here().is_main else {})):
        with pytest.raises(RuntimeError) as caught:
            strategy.load_weights(model, broken, strict=True)
        assert "other is not in the model" in str(caught.value)
        assert "scale is" in str(caught.value)


def resumed(strategy, saved, weights, steps):
    model = strategy.prepare(Small(seed=20))
    optimizer = adamw(model, lr=0.9)
    strategy.load_weights(model, weights)
    strategy.load_optimizer_state(model, optimizer, saved)
    assert optimizer.param_groups[0]["lr"] == 0.05
    rank = None if isinstance(strategy, Single) and strategy.world.size == 1 else strategy.world.rank
    train(strategy, model, optimizer, steps, rank=rank)
    return strategy.weights(model, wanted=True)


def check_optimizer_state_goes_from_one_process_to_two():
    alone, optimizer, _ = one_process(range(3))
    saved, weights = optimizer.state_dict(), dict(alone.state_dict())
    expected = dict(one_process(range(6))[0].state_dict())
    for strategy in (Distributed(here()), sharded(), sharded(offload=True)):
        copy = torch.load(_stored({"saved": saved, "weights": weights}))
        same(resumed(strategy, copy["saved"], copy["weights"], range(3, 6)), expected)
        copy = torch.load(_stored({"saved": saved, "weights": weights})) if here().is_main else {}
        same(resumed(strategy, copy.get("saved", {}), copy.get("weights", {}), range(3, 6)), expected)


def _stored(values):
    file = OUT / f"stored.{here().rank}"
    torch.save(values, file)
    return file


def check_optimizer_state_goes_from_two_processes_to_one():
    expected = dict(one_process(range(6))[0].state_dict())
    for strategy in (Distributed(here()), sharded(), sharded(strategy="no_shard", offload=True)):
        model = strategy.prepare(Small())
        optimizer = adamw(model)
        train(strategy, model, optimizer, range(3), rank=here().rank)
        saved, weights = strategy.optimizer_state(model, optimizer), strategy.weights(model)
        assert bool(saved) == bool(weights) == here().is_main
        if here().is_main:
            torch.save({"optimizer": saved, "weights": weights}, OUT / f"from_{type(strategy).__name__}.pt")
            assert all(not isinstance(each, DTensor) for each in saved["state"][0].values())
        saved, weights = collectives.broadcast_tree(saved), collectives.broadcast_tree(weights)
        same(resumed(Single(ALONE), saved, weights, range(3, 6)), expected)


def check_the_state_of_another_optimizer_is_refused():
    model = sharded().prepare(Small())
    saved = torch.optim.AdamW(nn.Linear(2, 2).parameters()).state_dict()
    with pytest.raises(ValueError) as caught:
        sharded().load_optimizer_state(model, adamw(model), saved)
    assert "[2] parameters, those of this optimizer [7]" in str(caught.value)


def folder(name):
    path = OUT / name
    if here().is_main:
        path.mkdir(exist_ok=True)
    collectives.barrier()
    return path


def check_sharded_files_are_read_by_the_same_processes():
    strategy = sharded(wrap="transformer", layer_classes=("Layer",))
    model, optimizer = follows_one_process(strategy)
    place = str(folder("sharded"))
    strategy.sharded_save(place, model, optimizer)
    strategy.sharded_save(place, model, optimizer)  # over one that is there
    expected = strategy.weights(model, wanted=True)
    same(read_whole(place), expected, tolerance=0)
    other = sharded(offload=True)
    fresh = other.prepare(Small(seed=8))
    other.sharded_load(place, fresh, continued := adamw(fresh, lr=0.9))
    same(other.weights(fresh, wanted=True), expected, tolerance=0)
    found = other.optimizer_state(fresh, continued, wanted=True)
    kept = strategy.optimizer_state(model, optimizer, wanted=True)
    assert found["param_groups"] == kept["param_groups"]
    for index, state in kept["state"].items():
        same(found["state"][index], state, tolerance=0)
    train(other, fresh, continued, range(4, 6), rank=here().rank)
    same(other.weights(fresh, wanted=True), dict(one_process(range(6))[0].state_dict()))


def check_sharded_files_of_one_process_are_read_by_two():
    expected = dict(one_process(range(6))[0].state_dict())
    for strategy in (sharded(), Distributed(here())):
        model = strategy.prepare(Small(seed=8))
        optimizer = adamw(model)
        strategy.sharded_load(str(OUT / "of_one"), model, optimizer)
        train(strategy, model, optimizer, range(3, 6), rank=here().rank)
        same(strategy.weights(model, wanted=True), expected)


def check_rows_are_gathered_padded_and_in_order():
    rank = here().rank
    logits = torch.full((2, 3 + rank), float(rank))
    tree = {"logits": (logits, torch.tensor([rank == 1, False])), "loss": torch.tensor(float(rank)), "none": None}
    found = collectives.gather_rows(tree)
    assert found["logits"][0].tolist() == [[0, 0, 0, -100]] * 2 + [[1, 1, 1, 1]] * 2
    assert found["logits"][1].tolist() == [False, False, True, False]
    assert found["loss"].tolist() == [0.0, 1.0]
    assert found["none"] is None
    uneven = collectives.gather_rows(torch.arange(1 + rank), pad=0)
    assert uneven.tolist() == [0, 0, 1]
    half = collectives.gather_rows(torch.ones(1, 2, dtype=torch.bfloat16))
    assert half.shape == (2, 2)


def check_different_outputs_are_told_instead_of_waited_for():
    tree = [torch.zeros(2)] * (1 + here().rank)
    with pytest.raises(ValueError) as caught:
        collectives.gather_rows(tree)
    assert "[1, 2] tensors" in str(caught.value)


def check_values_travel():
    rank = here().rank
    assert float(collectives.sum_over_ranks(torch.tensor(rank + 1.0))) == 3.0
    assert float(collectives.mean_over_ranks(torch.tensor(rank + 1.0))) == 1.5
    assert collectives.gather_objects({"rank": rank}) == [{"rank": 0}, {"rank": 1}]
    assert collectives.broadcast_object("first" if rank == 0 else None) == "first"
    tree = {"a": [torch.arange(3), 4], "b": torch.tensor(2.5)} if rank == 0 else None
    received = collectives.broadcast_tree(tree)
    assert received["a"][0].tolist() == [0, 1, 2]
    assert (received["a"][1], float(received["b"])) == (4, 2.5)
    assert collectives.all_have("yes")
    assert not collectives.all_have("yes" if rank == 0 else "")


def check_the_first_goes_first():
    mark = OUT / "mark"
    with collectives.one_first(is_first=here().is_main):
        assert mark.exists() != here().is_main
        mark.touch()


class Reading(Task):
    """A task for an engine: the sum of the losses of all words. It can run out of memory on purpose."""

    def __init__(self, most_rows=9):
        self.model, self.most_rows = Small(), most_rows
        self.model.aside = nn.Linear(WIDTH, 1)  # only the process with the first row trains it

    def train_step(self, batch):
        tokens = batch["tokens"]
        if len(tokens) > self.most_rows:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        loss = nn.functional.cross_entropy(
            self.model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum"
        )
        if batch["aside"]:
            loss = loss + self.model.aside(self.model.embed(tokens[:1, 0])).sum()
        return loss, tokens[:, 1:].numel(), {}


def updates_of_an_engine(strategy, cut, *, make=adamw, most_rows=9, aside=True, again=False, **options):
    """Return the facts and weights after three updates, each on the rows of two steps that `cut` selects.

    With `again`, each is run once more in search of where NaN began.
    """
    engine = PyTorchEngine(
        lambda: Reading(most_rows), make_optimizer=make, strategy=strategy,
        options=EngineOptions(clip_norm=0.3, **options), split=lambda each, parts: [
            {"tokens": rows, "aside": each["aside"] and index == 0}
            for index, rows in enumerate(each["tokens"].chunk(parts))
        ],
    )  # fmt: skip
    state, found = engine.start(1), []
    for number in range(3):
        rows = [batch(2 * number)[cut], batch(2 * number + 1)[cut]]
        group = [{"tokens": each, "aside": aside and cut.start == 0} for each in rows]
        state, facts = engine.update(state, group)
        found.append(engine.facts_to_host(facts))
        assert not again or engine.origin(state, group, number + 1) is None
    return found, strategy.weights(state.task.model, wanted=True), state


def engine_equals_one_process(strategy, **changes):
    """Compare an engine on two processes with one in this process; return its state."""
    cut = slice(0, 3) if here().rank == 0 else slice(3, 4)  # losses are divided by the count over all ranks
    changes |= {"aside": not strategy.shards}  # parts of a sharded model are not called without the whole
    facts, weights, state = updates_of_an_engine(strategy, cut, **changes)
    changes |= {"most_rows": 9}
    expected, alone, _ = updates_of_an_engine(Single(ALONE), slice(0, 4), **changes)
    for mine, theirs in zip(facts, expected, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-5)
    same(weights, alone, tolerance=1e-5)
    return state


def check_unsigned_rows_are_gathered_and_can_say_what_fills_them_up():
    mine = here().rank
    rows = torch.ones((3 - mine, 2), dtype=torch.uint8)
    assert collectives.gather_rows(rows).tolist() == [[1, 1]] * 5
    assert collectives.gather_rows(rows).dtype is torch.uint8
    wider = collectives.gather_rows(torch.ones((1, 1 + mine), dtype=torch.uint8))
    assert wider.tolist() == [[1, -100], [1, 1]]


def check_an_engine_on_two_processes_takes_the_updates_of_one():
    engine_equals_one_process(Replicated(here()))
    engine_equals_one_process(Replicated(here()), make=ours)


def check_an_engine_whose_weights_are_sharded_takes_the_updates_of_one():
    engine_equals_one_process(sharded())


def check_an_update_that_is_run_again_in_search_of_nan_leaves_nothing_for_the_next():
    for strategy in (sharded(), Replicated(here())):
        engine_equals_one_process(strategy, again=True)


def check_memory_that_runs_out_on_one_process_changes_nothing_for_both():
    parts = engine_equals_one_process(Replicated(here()), most_rows=2).update_parts
    assert collectives.gather_objects(parts) == [2, 1]


def check_facts_that_one_process_alone_has_are_summed_by_their_names():
    strategy, rank = Replicated(here()), here().rank
    first = strategy.sum_facts({"count": 2, ("left", "right")[rank]: torch.tensor([1.0])})
    second = strategy.sum_facts({"right": 5.0, "count": 1} if rank else {"count": 1})
    found = [{name: float(value) for name, value in each.items()} for each in (first, second)]
    assert found == [{"count": 4.0, "left": 1.0, "right": 1.0}, {"count": 2.0, "left": 0.0, "right": 5.0}]


def check_buffers_that_a_pass_changes_become_those_of_the_first_process():
    blocks = Blocks(here(), BlockOptions(interval=1, warmup=0))
    for strategy in (Replicated(here()), sharded(), blocks, Distributed(here(), DdpOptions(after_passes=True))):
        model = strategy.prepare(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
        norm, optimizer = strategy.unwrap(model)[1], adamw(model)
        strategy.begin(model, optimizer)
        with strategy.accumulating(model, last=True):
            model(torch.randn(4, 2) + 9 * here().rank).sum().backward()
        own = norm.running_mean.tolist()
        strategy.sum_gradients(list(model.parameters()))
        strategy.after_step(optimizer, 1)
        assert collectives.gather_objects(norm.running_mean.tolist()) == [collectives.gather_objects(own)[0]] * 2


def check_optimizer_states_are_averaged_over_the_processes_that_have_one():
    rank = here().rank
    states = {index: {"step": 4, "mean": torch.full((2,), 10.0 * index + rank)} for index in range(3)}
    own = {index: states[index] for index in ((0, 2) if rank == 0 else (2, 1))}
    found = mean_of_states(own)
    assert {index: each["mean"].tolist() for index, each in found.items()} == {0: [0, 0], 1: [11, 11], 2: [20.5, 20.5]}
    assert [each["step"] for each in found.values()] == [4, 4, 4]


def check_in_blocks_a_gradient_that_is_not_finite_on_one_process_is_told_to_all():
    blocks = Blocks(here(), BlockOptions())
    assert blocks.norm([torch.tensor([3.0]), torch.tensor([4.0 + here().rank])]) == (5.0, 34.0**0.5)[here().rank]
    assert blocks.norm([torch.tensor([3.0, torch.nan if here().rank else 4.0])]).isnan()


def check_an_average_of_shards_takes_the_place_of_the_weights():
    strategy = sharded()
    model = strategy.prepare(Small())
    weights = dict(model.named_parameters())
    average = AverageInPlace(weights, AveragingOptions(ema_decay=0.75))
    before, after = dict(Small().state_dict()), {name: each + 1.0 for name, each in Small().named_parameters()}
    strategy.load_weights(model, after)
    average.follow(1)
    with average.in_place(1):
        found = strategy.weights(model, wanted=True)
        same(found, before | {name: before[name] + 0.25 for name in weights})
    same(strategy.weights(model, wanted=True), before | after)
    same(average.trained(wanted=True), after)


def ours(model):
    kind = optimizers["adam"]
    return kind(kind.Parameters(), groups=[{"params": list(model.parameters()), "lr": 0.05}])


def main() -> None:
    global OUT
    given = [word for word in sys.argv[1:] if not word.startswith("--")]  # launch.py adds --local-rank
    OUT, wanted = Path(given[0]), given[1:]
    torch.set_num_threads(1)
    current = world.current(use_cpu=True, timeout=120)
    for name in [name for name in globals() if name.startswith("check_")]:
        if name not in wanted if wanted else name.startswith("check_two_machines"):
            continue
        try:
            globals()[name]()
            text = "passed"
        except BaseException:
            text = traceback.format_exc()
        (OUT / f"{name}.{current.rank}").write_text(text)
        collectives.barrier()


if __name__ == "__main__":
    if "--fork" in sys.argv:
        import_before_forking(*SHARDING)
        sys.exit(any(fork_ranks(lambda rank: main(), 2, f"{sys.argv[1]}/said")))
    main()
