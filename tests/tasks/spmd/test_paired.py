"""The engine of x-train on JAX, beside that on PyTorch, on a model and batches made by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import torch

from tests.tiers import nightly
from xdpx.config.faults import ConfigError
from xdpx.config.spmd_keys import COUNTERPARTS
from xdpx.engines.pytorch.engine import PyTorchEngine
from xdpx.engines.pytorch.options import EngineOptions
from xdpx.engines.spmd.mesh import make_mesh
from xdpx.engines.spmd.paired import PairedEngine, PairedOptions
from xdpx.losses.cross_entropy import CrossEntropy
from xdpx.models.pytorch.bert_classification import BertClassification
from xdpx.models.spmd.sharding import TRANSFORMER_RULES
from xdpx.optimizers.pytorch.adam import Adam
from xdpx.tasks.default import Task
from xdpx.tasks.spmd.building import mesh_of
from xdpx.tasks.spmd.paired import LOSSES, MODELS, RULES, pair_with

SIZES: dict[str, Any] = {
    "pretrained_model": None, "num_classes": 3, "vocab_size": 30, "pad_index": 0, "hidden_size": 8,
    "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 12,
    "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.3,
}  # fmt: skip
NAMES = {"model": "bert_classification", "loss": "cross_entropy", "optimizer": "adam"}
ADAM = Adam.Parameters(learning_rate=0.01, weight_decay=0.1)


def maker(**keys: Any) -> Callable[[], Task]:
    def make() -> Task:
        model = BertClassification(BertClassification.Parameters(**(SIZES | keys)))
        loss = CrossEntropy(CrossEntropy.Parameters(num_classes=3))
        return Task(Task.Parameters(model="bert_classification", loss="cross_entropy"), model, loss)

    return make


def on_jax(*, clip_norm: float = 1.0, bf16: bool = False, mesh: list[int] | None = None, **keys: Any) -> PairedEngine:
    def pair(host: Any) -> Any:
        groups = host.model.parameter_groups(0.01)
        return pair_with(
            host, NAMES, optimizer=ADAM, groups=groups, bf16=bf16, clip_norm=clip_norm, ema_decay=0.9, sizes=True
        )

    options = PairedOptions(seed=5, batch_size=8, precision="highest", ema_decay=0.9)
    sizes = mesh or [2, 1, 1]
    grid = make_mesh(sizes, devices=jax.devices()[: math.prod(sizes)])
    return PairedEngine(maker(**keys), pair, mesh=grid, rules=TRANSFORMER_RULES, options=options)


@pytest.fixture(scope="module")
def plain() -> PairedEngine:
    """An engine whose update is compiled once for all tests that need no other."""
    return on_jax()


def on_pytorch(**keys: Any) -> PyTorchEngine:
    options = EngineOptions(device="cpu", clip_norm=1.0, ema_decay=0.9, seed=5)
    return PyTorchEngine(
        maker(**keys), make_optimizer=lambda model: Adam(ADAM, groups=model.parameter_groups(0.01)), options=options
    )


def batch_of(rows: int, width: int, seed: int) -> dict[str, Any]:
    numbers = np.random.default_rng(seed)
    lengths = numbers.integers(2, width + 1, rows)
    mask = np.arange(width) < lengths[:, None]
    ids = np.where(mask, numbers.integers(1, 30, mask.shape), 0)
    return {
        "id": np.arange(rows),
        "net_input": {"input_ids": ids, "attention_mask": mask},
        "target": numbers.integers(0, 3, rows),
        "ntokens": int(mask.sum()),
    }


GROUPS = [[batch_of(8, 5, 1), batch_of(6, 7, 2)], [batch_of(8, 6, 3)]]


@pytest.mark.parametrize("keys", [{}, {"fix_lm": True, "top_lr_ratio": 3.0, "gradient_checkpointing": True}])
def test_facts_weights_and_sizes_of_gradients_are_those_of_pytorch(plain: PairedEngine, keys: dict[str, Any]) -> None:
    found = []
    for engine in (on_pytorch(**keys), on_jax(**keys) if keys else plain):
        state = engine.start(5)
        told = []
        for group in GROUPS:
            state, facts = engine.update(state, group)
            told.append(engine.facts_to_host(facts))
        found.append((told, engine.weights(state), engine.gradient_sizes(state)))
    theirs, ours = found
    for wanted, given in zip(theirs[0], ours[0], strict=True):
        assert given == pytest.approx(wanted, rel=1e-4)
    assert set(theirs[1]) == set(ours[1])
    for name, weight in theirs[1].items():
        # Softmax does not see what is added to all keys: that gradient is rounding, and Adam makes steps of it.
        within = 1e-4 if name.endswith("key.bias") else 1e-5
        torch.testing.assert_close(ours[1][name], weight, rtol=1e-3, atol=within, msg=name)
    assert set(theirs[2]) == set(ours[2])
    for name, sizes in theirs[2].items():
        compared = 2 if name.endswith("key.bias") else 3  # which part of rounding is exactly zero differs by processor
        assert ours[2][name][:compared] == pytest.approx(sizes[:compared], rel=1e-2, abs=1e-6), name


@nightly("tests/engines/spmd/test_engine.py::test_randomness_depends_on_seed_and_step_alone")
@pytest.mark.slow
def test_dropout_depends_on_seed_and_update_alone_and_not_on_the_mesh() -> None:
    drops = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.2}
    losses = []
    for mesh in ([8, 1, 1], [2, 2, 2]):
        engine = on_jax(mesh=mesh, **drops)
        state = engine.start(5)
        state, _ = engine.update(state, GROUPS[1])
        again = engine.restore(engine.snapshot(state))
        for each in (state, again):
            losses.append(engine.facts_to_host(engine.update(each, GROUPS[1])[1])["loss_sum"])
    assert losses[0] == losses[1]
    assert losses[2] == losses[3]
    assert losses[0] == pytest.approx(losses[2], rel=1e-5)


@pytest.mark.slow
def test_half_precision_is_near_and_keeps_weights_whole(plain: PairedEngine) -> None:
    losses = []
    for engine in (plain, on_jax(bf16=True)):
        state, facts = engine.update(engine.start(5), GROUPS[1])
        losses.append(engine.facts_to_host(facts)["loss_sum"])
        assert {weight.dtype for weight in engine.weights(state).values()} == {torch.float32}
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


def test_a_batch_without_labels_is_predicted_and_filling_is_cut_off(plain: PairedEngine) -> None:
    engine = plain
    state = engine.with_weights(on_pytorch().weights(on_pytorch().start(5)))
    batch = {name: value for name, value in batch_of(3, 5, 4).items() if name != "target"}
    found = engine.predictions_to_host(engine.score(state, batch))
    assert set(found) == {"prob", "pred"}
    assert found["prob"].shape == (3, 3)
    wanted = on_pytorch()
    theirs = wanted.predictions_to_host(wanted.score(wanted.start(5), batch))
    np.testing.assert_allclose(found["prob"], theirs["prob"], atol=1e-5)


def test_weights_of_another_model_are_refused_as_on_pytorch(plain: PairedEngine) -> None:
    engine = plain
    with pytest.raises(ConfigError, match="is another one"):
        engine.with_weights({"classifier.weight": torch.zeros(3, 8)})
    with pytest.raises(ConfigError, match="engine: is spmd, but the checkpoint is of another engine"):
        engine.restore({"format": "xdpx-pytorch-1"})
    saved = {**engine.snapshot(engine.start(5)), "rule": "Lamb", "ema_decay": 0.5}
    with pytest.raises(ConfigError, match="optimizer: is Adam here, but Lamb") as caught:
        engine.restore(saved)
    assert len(caught.value.faults) == 2


def test_devices_fill_the_mesh_or_it_is_refused() -> None:
    assert dict(mesh_of({}, cuda=False).shape) == {"replica": 8, "data": 1, "mdl": 1}
    assert dict(mesh_of({"mesh": [-1, 2, 2]}, cuda=None).shape) == {"replica": 2, "data": 2, "mdl": 2}
    for sizes in ([4, 1, 1], [-1, 3, 1]):
        with pytest.raises(ConfigError, match="mesh: is .* there are 8"):
            mesh_of({"mesh": sizes}, cuda=None)
    if jax.default_backend() == "cpu":
        with pytest.raises(ConfigError, match="cuda: is true, but jax has no device"):
            mesh_of({}, cuda=True)


def test_the_names_that_are_told_without_jax_are_those_that_are_computed() -> None:
    computed = {"model": MODELS, "loss": LOSSES, "optimizer": RULES}
    assert {kind: set(table) for kind, table in computed.items()} == {
        kind: set(COUNTERPARTS[kind]) for kind in computed
    }


@nightly("tests/engines/spmd/test_tracing_back.py::test_a_healthy_update_has_no_origin")
def test_an_update_of_finite_numbers_has_no_origin(plain: PairedEngine) -> None:
    assert plain.origin(plain.start(5), GROUPS[1], 1) is None


def test_the_layer_that_overflows_is_named_and_no_later_update_moves_the_weights(plain: PairedEngine) -> None:
    engine = plain
    state = engine.start(5)
    places = jax.tree.map(lambda leaf: leaf.sharding, state.arrays["params"])
    good = jax.tree.map(np.array, state.arrays["params"])
    leaves = jax.tree_util.tree_leaves_with_path(state.arrays["params"])
    stacked = [path for path, leaf in leaves if leaf.ndim >= 3 and leaf.shape[0] == SIZES["num_hidden_layers"]]
    assert stacked, [(jax.tree_util.keystr(path), leaf.shape) for path, leaf in leaves]
    spoilt = jax.tree_util.tree_map_with_path(
        lambda at, leaf: leaf.at[1].set(3e38) if at == stacked[0] else leaf, state.arrays["params"]
    )
    state.arrays["params"] = jax.device_put(spoilt, places)
    origin = engine.origin(state, GROUPS[1], 1)
    assert origin is not None
    assert origin.phase == "forward"
    assert "(run 1 of 2)" in origin.name
    state, facts = engine.update(state, GROUPS[1])
    assert not np.isfinite(float(facts["grad_norm"]))
    state.arrays["params"] = jax.device_put(good, places)
    state, facts = engine.update(state, GROUPS[1])
    assert np.isfinite(float(facts["grad_norm"]))
    for before, after in zip(jax.tree.leaves(good), jax.tree.leaves(state.arrays["params"]), strict=True):
        np.testing.assert_array_equal(before, after)
