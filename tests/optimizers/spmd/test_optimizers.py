import ast
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from xdpx.config.faults import ConfigError
from xdpx.optimizers.spmd import optimizers
from xdpx.optimizers.spmd.learner import Learner

GOLDEN = json.loads((Path(__file__).parent / "goldens_optim.json").read_text())
RATE = 0.1


def arrays(tree: Any) -> dict[str, jax.Array]:
    return {name: jnp.asarray(value, jnp.float32) for name, value in tree.items()}


def walk(optimizer: Any, params: Any, grads: Any) -> list[Any]:
    rule = optimizer.transformation()
    state, seen = rule.init(params), []
    for gradient in grads:
        steps, state = rule.update(gradient, state, params)
        params = optax.apply_updates(params, steps)
        seen.append(params)
    return seen


@pytest.mark.parametrize("name", GOLDEN["optim"])
def test_an_update_rule_moves_as_pax_moved(name: str) -> None:
    kind, _, fields = name.partition("{")
    optimizer = getattr(optimizers, kind)(learning_rate=RATE, **ast.literal_eval("{" + fields))
    walked = walk(optimizer, arrays(GOLDEN["params"]), [arrays(gradient) for gradient in GOLDEN["grads"]])
    for params, wanted in zip(walked, GOLDEN["optim"][name], strict=True):
        for weight, values in wanted.items():
            np.testing.assert_allclose(params[weight], np.float32(values), atol=2.5e-6)


PARAMS = {"w": jnp.linspace(-1, 1, 12).reshape(3, 4), "b": jnp.ones(4)}
GRADS = [{"w": jnp.cos(jnp.arange(12.0) * k).reshape(3, 4), "b": jnp.full(4, 0.5 * k)} for k in (1.0, 2.0, 3.0)]


def chained(rule: Any) -> list[Any]:
    params, state, seen = PARAMS, rule.init(PARAMS), []
    for gradient in GRADS:
        steps, state = rule.update(gradient, state, params)
        params = optax.apply_updates(params, steps)
        seen.append(params)
    return seen


@pytest.mark.parametrize(
    ("ours", "peer"),
    [
        (optimizers.Adam(learning_rate=RATE, clip_threshold=-1.0, epsilon=1e-8, weight_decay=0.1),
         optax.adamw(RATE, weight_decay=0.1)),
        (optimizers.Sgd(learning_rate=RATE, momentum=0.9, nesterov=True), optax.sgd(RATE, 0.9, nesterov=True)),
        (optimizers.Lamb(learning_rate=RATE, weight_decay=0.1), optax.lamb(RATE, weight_decay=0.1)),
        (optimizers.Lars(learning_rate=RATE), optax.lars(RATE)),
        (optimizers.Adagrad(learning_rate=RATE, epsilon=1e-7), optax.adagrad(RATE)),
        (optimizers.Adafactor(learning_rate=RATE), optax.adafactor(RATE)),
        (optimizers.Muon(learning_rate=RATE), optax.contrib.muon(RATE)),
        (optimizers.OptaxOptimizer(grad_tx=optax.adamw(RATE)), optax.adamw(RATE)),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_an_update_rule_moves_as_its_peer_in_optax(ours: Any, peer: Any) -> None:
    for mine, theirs in zip(walk(ours, PARAMS, GRADS), chained(peer), strict=True):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6), mine, theirs)


def test_factored_moments_take_a_row_and_a_column_of_memory() -> None:
    state = optimizers.ShardedAdafactor(learning_rate=RATE).rule().init({"w": jnp.ones((30, 40))})
    assert sum(leaf.size for leaf in jax.tree.leaves(state)) < 30 + 40 + 10


@pytest.mark.parametrize("dtype", ["int8", "bfloat16", "float32"])
def test_the_first_moment_is_kept_in_as_many_bits_as_asked_for(dtype: str) -> None:
    optimizer = optimizers.ShardedAdafactor(learning_rate=RATE, beta1=0.9, quantized_dtype=dtype)
    state = optimizer.rule().init(PARAMS)
    assert jnp.dtype(dtype) in {leaf.dtype for leaf in jax.tree.leaves(state)}
    first = walk(optimizer, PARAMS, GRADS)[0]
    np.testing.assert_allclose(first["b"], 0.99, atol=1e-3)


def test_adafactor_s_other_decay_and_scale_of_steps_follow_the_paper() -> None:
    optimizer = optimizers.ShardedAdafactor(
        learning_rate=RATE, decay_method="pow", multiply_by_parameter_scale=True, factored=False
    )
    first = walk(optimizer, {"b": jnp.full(4, 2.0)}, [{"b": jnp.ones(4)}])[0]
    np.testing.assert_allclose(first["b"], 2.0 - RATE * 2.0, rtol=1e-6)  # decay 0 at first; steps are times 2


ZERO = [{"w": jnp.zeros((3, 4)), "b": jnp.zeros(4)}]
RULES = sorted(set(optimizers.__all__) - {"BaseOptimizer"})


def made(name: str, **fields: Any) -> Any:
    """Build a rule by its name; an accumulator has the fields where they belong, in the rule inside."""
    kind = getattr(optimizers, name)
    if kind is optimizers.DistributedShampoo:
        pytest.importorskip("optax_shampoo")
    if kind is optimizers.Accumulator:
        return kind(optimizer_tpl=optimizers.Adam.HParams(learning_rate=RATE, **fields))
    more = {"grad_tx": optax.sgd(RATE)} if kind is optimizers.OptaxOptimizer else {}
    return kind(learning_rate=RATE, **more, **fields)


@pytest.mark.parametrize("field", ["l1_regularizer_weight", "l2_regularizer_weight"])
@pytest.mark.parametrize("name", RULES)
def test_every_rule_steps_along_the_gradient_of_its_penalties(name: str, field: str) -> None:
    pull = jnp.sign(PARAMS["w"]) if field.startswith("l1") else PARAMS["w"]
    wanted = walk(made(name), PARAMS, [{"w": 0.5 * pull, "b": jnp.zeros(4)}])[0]
    moved = walk(made(name, **{field: 0.5}, weight_decay_exclusion=["params/b$"]), PARAMS, ZERO)[0]
    np.testing.assert_allclose(moved["w"], wanted["w"], rtol=1e-6)
    assert jnp.any(moved["w"] != PARAMS["w"])
    np.testing.assert_array_equal(moved["b"], PARAMS["b"])


@pytest.mark.parametrize("name", RULES)
def test_every_rule_decays_all_weights_but_the_excluded(name: str) -> None:
    moved = walk(made(name, weight_decay=0.5, weight_decay_exclusion=["params/b$"]), PARAMS, ZERO)[0]
    assert jnp.all(jnp.abs(moved["w"]) < jnp.abs(PARAMS["w"]))
    np.testing.assert_array_equal(moved["b"], PARAMS["b"])


def test_penalties_and_decay_are_as_large_as_said_and_can_leave_vectors_alone() -> None:
    for field in ("weight_decay", "l1_regularizer_weight", "l2_regularizer_weight"):
        moved = walk(optimizers.Sgd(learning_rate=RATE, **{field: 0.5}), PARAMS, ZERO)[0]
        pull = jnp.sign(PARAMS["w"]) if field.startswith("l1") else PARAMS["w"]
        np.testing.assert_allclose(moved["w"], PARAMS["w"] - RATE * 0.5 * pull, rtol=1e-5, atol=1e-7)
    thin = walk(optimizers.Sgd(learning_rate=RATE, weight_decay=0.5, skip_lp_1d_vectors=True), PARAMS, ZERO)[0]
    np.testing.assert_array_equal(thin["b"], PARAMS["b"])


def test_accumulated_gradients_are_one_step_with_their_mean() -> None:
    sgd = optimizers.Sgd.HParams(learning_rate=RATE)
    seen = walk(optimizers.Accumulator(optimizer_tpl=sgd, num_sub_batches=3), PARAMS, GRADS)
    np.testing.assert_array_equal(seen[1]["b"], PARAMS["b"])
    np.testing.assert_allclose(seen[2]["b"], PARAMS["b"] - RATE * 1.0, rtol=1e-6)


def test_numbers_that_would_turn_a_step_around_are_refused_together() -> None:
    bad = {"learning_rate": -0.1, "clip_gradient_norm_to_value": -1.0, "ema_decay": 1.5, "beta1": 1.0}
    with pytest.raises(ConfigError) as refused:
        optimizers.Adam(**bad)
    assert {fault.key for fault in refused.value.faults} == {f"Adam.{name}" for name in bad}
    with pytest.raises(ConfigError, match=r"Sgd.learning_rate: is nan. Use 0 or more"):
        optimizers.Sgd(learning_rate=float("nan"), momentum=0.0)


def test_what_excludes_each_other_is_refused() -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        optimizers.Adam(weight_decay=0.1, l2_regularizer_weight=0.1)
    with pytest.raises(ValueError, match="Keep one of them"):
        optimizers.Adam(clip_gradient_norm_to_value=1.0, clip_gradient_single_norm_to_value=1.0)


@pytest.mark.parametrize("field", optimizers.REGULARISATION)
def test_an_accumulator_with_penalties_of_its_own_is_refused(field: str) -> None:
    sgd = optimizers.Sgd.HParams(learning_rate=RATE)
    value = {"weight_decay_exclusion": ["b"], "skip_lp_1d_vectors": True}.get(field, 0.1)
    with pytest.raises(ValueError, match=rf"{field}.*Set it in optimizer_tpl"):
        optimizers.Accumulator(optimizer_tpl=sgd, **{field: value})


def test_what_cannot_be_built_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="grad_tx: is None"):
        optimizers.OptaxOptimizer().rule()
    with pytest.raises(ValueError, match="optimizer_tpl"):
        optimizers.Accumulator()
    with pytest.raises(ModuleNotFoundError, match="use Muon"):
        optimizers.DistributedShampoo().rule()
    there: Any = ModuleType("there")
    there.distributed_shampoo = None
    for name in ("optax_shampoo", "optax_shampoo.distributed_shampoo"):
        monkeypatch.setitem(sys.modules, name, there)
    with pytest.raises(ValueError, match=r"optax_shampoo calls jax.tree_map, which JAX .* has no longer\. Use Muon"):
        optimizers.DistributedShampoo().rule()


def test_the_learner_uses_the_rule_of_its_template() -> None:
    learner = Learner(optimizer=optimizers.Lion.HParams(learning_rate=RATE))
    params, _, _ = learner.update(GRADS[0], learner.init(PARAMS), PARAMS, step=0)
    np.testing.assert_allclose(params["b"], 0.9, rtol=1e-6)


@pytest.mark.parametrize("wants", [optax.contrib.reduce_on_plateau(), optax.polyak_sgd()])
def test_a_transformation_that_follows_the_loss_is_refused(wants: Any) -> None:
    weights = {"w": jnp.ones(2)}
    rule = optimizers.OptaxOptimizer(grad_tx=optax.chain(optax.sgd(RATE), wants)).rule()
    with pytest.raises(ValueError, match=r"grad_tx: wants more than gradients and weights: .*'value'"):
        rule.update(weights, rule.init(weights), weights, learning_rate=RATE)
