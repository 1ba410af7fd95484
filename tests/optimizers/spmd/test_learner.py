from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec

from xdpx.config.faults import ConfigError
from xdpx.optimizers.spmd.learner import LIMITS, Learner, MultiOptimizerLearner
from xdpx.optimizers.spmd.optimizers import (
    Accumulator,
    Adam,
    Lamb,
    OptaxOptimizer,
    Sgd,
    ShardedAdafactor,
    joins_weights,
)
from xdpx.optimizers.spmd.schedules import Linear

PARAMS: dict[str, Any] = {
    "lm": {"emb": jnp.ones((6, 4)), "norm": {"scale": jnp.full(4, 2.0, jnp.float32)}},
    "head": jnp.full((4, 2), 0.5, jnp.float32),
}
GRADS = jax.tree.map(lambda weight: jnp.full_like(weight, 0.1), PARAMS)
SGD = Sgd.HParams(learning_rate=1.0)


def take(learner: Learner, grads: Any = None, params: Any = None, step: int = 0) -> Any:
    params = PARAMS if params is None else params
    return learner.update(GRADS if grads is None else grads, learner.init(params), params, step=step)


def test_a_step_goes_down_the_gradient_at_the_scheduled_rate() -> None:
    line = Linear.HParams(start=(0, 0.0), limit=(10, 1.0))
    learner = Learner(optimizer=Sgd.HParams(learning_rate=2.0, lr_schedule=line))
    params, _, facts = take(learner, step=5)
    np.testing.assert_allclose(params["head"], 0.5 - 0.1, rtol=1e-6)
    assert float(facts["learning_rate"]) == pytest.approx(1.0)
    assert float(facts["grad_norm"]) == pytest.approx(0.1 * np.sqrt(24 + 4 + 8), rel=1e-6)
    assert float(facts["applied_grad_norm"]) == pytest.approx(float(facts["grad_norm"]), rel=1e-6)


def test_clipping_scales_all_gradients_together() -> None:
    params, _, facts = take(Learner(optimizer=SGD.clone().set(clip_gradient_norm_to_value=0.3)))
    assert float(facts["clipped"]) == 1.0
    assert float(facts["grad_scale"]) == pytest.approx(0.5, rel=1e-5)
    assert float(facts["clipped_grad_norm"]) == pytest.approx(0.3, rel=1e-5)
    np.testing.assert_allclose(params["head"], 0.5 - 0.05, rtol=1e-5)


def test_clipping_each_weight_leaves_short_gradients_alone() -> None:
    params, _, _ = take(Learner(optimizer=SGD.clone().set(clip_gradient_single_norm_to_value=0.2)))
    np.testing.assert_allclose(params["lm"]["norm"]["scale"], 1.9, rtol=1e-6)  # 0.2 long: as it is
    np.testing.assert_allclose(params["lm"]["emb"], 1 - 0.2 / np.sqrt(24), rtol=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e9])
def test_a_gradient_that_is_not_fit_moves_nothing(bad: float) -> None:
    learner = Learner(optimizer=Adam.HParams(learning_rate=0.1, ema_decay=0.9), skip_step_gradient_norm_value=1e6)
    grads = {**GRADS, "head": GRADS["head"].at[0, 0].set(bad)}
    state = learner.init(PARAMS)
    params, after, facts = learner.update(grads, state, PARAMS, step=0)
    jax.tree.map(np.testing.assert_array_equal, (params, after), (PARAMS, state))
    assert float(facts["is_valid_step"]) == 0.0
    assert float(facts["applied_grad_norm"]) == 0.0


def test_anomalies_are_stepped_along_when_nobody_minds(capsys: pytest.CaptureFixture[str]) -> None:
    learner = Learner(optimizer=SGD, skip_step_gradient_norm_value=0.01, enable_skip_step_on_gradient_anomalies=False)
    assert "is 0.01, but skips nothing while" in capsys.readouterr().err
    assert float(take(learner)[2]["is_valid_step"]) == 1.0


def test_excluded_weights_stay_and_have_no_state() -> None:
    learner = Learner(optimizer=Adam.HParams(learning_rate=0.1), bprop_variable_exclusion=["lm/emb"])
    params, state, facts = take(learner)
    np.testing.assert_array_equal(params["lm"]["emb"], PARAMS["lm"]["emb"])
    assert np.all(params["head"] != PARAMS["head"])
    assert (6, 4) not in {leaf.shape for leaf in jax.tree.leaves(state)}
    assert float(facts["grad_norm"]) == pytest.approx(0.1 * np.sqrt(12), rel=1e-6)
    keeping = Learner(
        optimizer=Adam.HParams(learning_rate=0.1), bprop_variable_inclusion="head",
        keep_optimizer_state_for_excluded_vars=True,
    )  # fmt: skip
    params, state, _ = take(keeping)
    np.testing.assert_array_equal(params["lm"]["emb"], PARAMS["lm"]["emb"])
    assert (6, 4) in {leaf.shape for leaf in jax.tree.leaves(state)}


def test_a_pattern_that_no_weight_has_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'embb' matches no name of a weight.*params/head"):
        Learner(optimizer=SGD, bprop_variable_exclusion=["embb"]).init(PARAMS)
    with pytest.raises(ConfigError, match=r"learner.bprop_variable_exclusion: '\(emb' is not a regular expression"):
        Learner(optimizer=SGD, bprop_variable_exclusion="(emb").init(PARAMS)
    with pytest.raises(ConfigError, match="main.weight_decay_exclusion: 'norn' matches no name"):
        Learner(optimizer=SGD.clone().set(weight_decay=0.1, weight_decay_exclusion=["norm", "norn"])).init(PARAMS)
    with pytest.raises(ConfigError, match="exclude each other"):
        Learner(bprop_variable_exclusion="a", bprop_variable_inclusion="b")


@pytest.mark.parametrize("template", [Adam, Lamb, ShardedAdafactor])
def test_a_stack_of_layers_moves_as_the_layers_by_themselves(template: Any) -> None:
    optimizer = template.HParams(learning_rate=0.1, weight_decay=0.01, clip_gradient_single_norm_to_value=0.5)
    layers = [jnp.linspace(k, k + 1, 12).reshape(3, 4) for k in range(2)]
    stack, grads = {"w": jnp.stack(layers)}, {"w": jnp.stack([jnp.cos(layer * 9) * 10 for layer in layers])}
    learner = Learner(optimizer=optimizer)
    learner.prepare({"w": ("layers", "embed", "mlp")})
    state = learner.init(stack)
    apart = Learner(optimizer=optimizer)
    alone = [{"w": layer} for layer in layers]
    states = [apart.init(one) for one in alone]
    for step in range(2):
        stack, state, _ = learner.update(grads, state, stack, step=step)
        for index in range(2):
            alone[index], states[index], _ = apart.update(
                {"w": grads["w"][index]}, states[index], alone[index], step=step
            )
    np.testing.assert_allclose(stack["w"], jnp.stack([one["w"] for one in alone]), rtol=1e-6)


def test_without_vectorising_a_stack_is_one_weight() -> None:
    learner = Learner(vectorize_on_repeat_prefix=False, optimizer=Lamb.HParams(learning_rate=0.1))
    learner.prepare({"w": ("layers", "embed")})
    assert set(learner.init({"w": jnp.ones((2, 3))})["rules"]) == {"main"}
    learner = Learner(optimizer=Lamb.HParams(learning_rate=0.1))
    learner.prepare({"w": ("layers", "embed")})
    assert set(learner.init({"w": jnp.ones((2, 3))})["rules"]) == {"main_2"}


def test_the_average_is_of_the_weights_before_each_update() -> None:
    learner = Learner(optimizer=SGD.clone().set(ema_decay=0.5))
    params, state = PARAMS, learner.init(PARAMS)
    average, seen = 0.5, []
    for step in range(3):
        decay = min(0.5, (1 + step) / (10 + step))
        average = decay * average + (1 - decay) * float(params["head"][0, 0])
        params, state, _ = learner.update(GRADS, state, params, step=step)
        seen.append(float(learner.averaged(state)["head"][0, 0]))
    assert seen[-1] == pytest.approx(average, rel=1e-6)
    assert Learner(optimizer=SGD).averaged(Learner(optimizer=SGD).init(PARAMS)) is None


def test_an_average_that_would_not_move_is_refused() -> None:
    half = {"w": jnp.ones(3, jnp.bfloat16)}
    with pytest.raises(ConfigError, match=r"ema_decay: averages params/w, of bfloat16"):
        Learner(optimizer=SGD.clone().set(ema_decay=0.999)).init(half)
    assert "ema" not in Learner(optimizer=SGD).init(half)


def test_weights_without_gradient_are_left_alone_with_their_states() -> None:
    learner = Learner(optimizer=Adam.HParams(learning_rate=0.1, weight_decay=0.1), skip_zero_gradients="weights")
    grads = {**GRADS, "head": jnp.zeros((4, 2))}
    params, _, _ = take(learner, grads)
    np.testing.assert_array_equal(params["head"], PARAMS["head"])
    assert np.all(params["lm"]["emb"] != 1)
    none = jax.tree.map(jnp.zeros_like, GRADS)
    for minds in (True, False):
        skipping = Learner(skip_zero_gradients="global", enable_skip_step_on_gradient_anomalies=minds)
        assert float(take(skipping, none)[2]["is_valid_step"]) == 0.0


def test_a_weight_is_not_skipped_among_gradients_that_are_counted_together() -> None:
    several = Accumulator.HParams(optimizer_tpl=SGD, num_sub_batches=2)
    with pytest.raises(ConfigError, match="skip_zero_gradients: is 'weights', but Accumulator counts"):
        Learner(optimizer=several, skip_zero_gradients="weights").init(PARAMS)


@pytest.mark.parametrize(("vectorised", "told"), [(True, 1), (False, 0)])
def test_a_norm_over_all_weights_that_is_taken_layer_by_layer_is_told(
    vectorised: bool, told: int, capsys: pytest.CaptureFixture[str]
) -> None:
    params = {"stack": jnp.ones((3, 2)), "head": jnp.ones(2)}
    clipping = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(1.0))
    optimizer = OptaxOptimizer.HParams(grad_tx=clipping)
    learner = Learner(name=f"clipping {vectorised}", optimizer=optimizer, vectorize_on_repeat_prefix=vectorised)
    learner.prepare({"stack": ("layers", None), "head": (None,)})
    moved, _, _ = take(learner, params, params)
    if not vectorised:
        expected, _ = clipping.update(params, clipping.init(params), params)
        jax.tree.map(np.testing.assert_allclose, moved, optax.apply_updates(params, expected))
    assert capsys.readouterr().err.count("the step of a weight depends on the gradients of others") == told


def test_rules_that_look_at_each_weight_alone_or_at_a_certain_model_join_nothing() -> None:
    of_model = optax.masked(optax.sgd(1.0), {"lm": True, "head": False})
    assert [joins_weights(rule) for rule in (optax.adamw(0.1), optax.lamb(0.1), of_model)] == [False] * 3


def test_updates_can_follow_the_norm_of_their_weight() -> None:
    params, _, facts = take(Learner(optimizer=SGD, scale_update_by_var_norm=True, grad_norm_individual_vars=True))
    np.testing.assert_allclose(params["lm"]["norm"]["scale"], 2 - 0.1 * 4, rtol=1e-6)
    assert float(facts["grad_norm/params/head"]) == pytest.approx(0.1 * np.sqrt(8), rel=1e-6)


def test_several_rules_share_the_weights_by_name() -> None:
    learner = MultiOptimizerLearner(
        optimizer=SGD, auxiliary_optimizers=[Sgd.HParams(learning_rate=3.0)], auxiliary_regex=["head"]
    )
    params, _, facts = take(learner)
    np.testing.assert_allclose(params["head"], 0.5 - 0.3, rtol=1e-6)
    np.testing.assert_allclose(params["lm"]["emb"], 0.9, rtol=1e-6)
    assert float(facts["learning_rate_aux_1"]) == 3.0


def test_rules_that_overlap_or_touch_nothing_are_refused() -> None:
    two = {"optimizer": SGD, "auxiliary_optimizers": [SGD, SGD]}
    with pytest.raises(ValueError, match="two match params/head"):
        MultiOptimizerLearner(**two, auxiliary_regex=["head", "he"]).init(PARAMS)
    with pytest.raises(ValueError, match="matches no name"):
        MultiOptimizerLearner(**two, auxiliary_regex=["head", "tail"]).init(PARAMS)
    with pytest.raises(ValueError, match="one expression, and one name, for each"):
        MultiOptimizerLearner(**two, auxiliary_regex=["head"])


@pytest.mark.parametrize("field", LIMITS)
def test_limits_that_no_learner_would_heed_are_refused(field: str) -> None:
    limited = SGD.clone().set(**{field: 0.5})
    with pytest.raises(ValueError, match=rf"optimizer\.optimizer_tpl\.{field}: is 0\.5.*leave it out here"):
        Learner(optimizer=Accumulator.HParams(optimizer_tpl=limited))
    Learner(optimizer=Accumulator.HParams(optimizer_tpl=SGD, **{field: 0.5}))
    several = {"auxiliary_regex": ["head"], "auxiliary_optimizers": [limited]}
    with pytest.raises(ValueError, match=rf"auxiliary_optimizers \(aux_1\)\.{field}"):
        MultiOptimizerLearner(optimizer=SGD, **several)
    MultiOptimizerLearner(optimizer=limited, **several)  # the main rule says the same, and so it holds


def test_states_live_beside_their_weights() -> None:
    axes = {"lm": {"emb": ("vocab", "embed"), "norm": {"scale": PartitionSpec("norm")}}, "head": ("embed", None)}
    learner = Learner(optimizer=Adam.HParams(learning_rate=0.1, ema_decay=0.9))
    found = learner.partition(jax.eval_shape(learner.init, PARAMS), axes)
    moments = found["rules"]["main"][0][0]
    assert moments.mu["lm"]["emb"] == ("vocab", "embed")
    assert moments.nu["lm"]["norm"]["scale"] == ("norm",)
    assert moments.count == ()
    assert found["ema"]["average"]["head"] == ("embed", None)


def test_factored_moments_live_along_the_axes_they_have() -> None:
    learner = Learner(optimizer=ShardedAdafactor.HParams(learning_rate=0.1))
    axes = {"w": ("layers", "embed", "mlp"), "square": ("embed", "mlp")}
    learner.prepare(axes)
    params = {"w": jnp.ones((2, 3, 5)), "square": jnp.ones((4, 4))}
    found = learner.partition(jax.eval_shape(learner.init, params), axes)["rules"]
    assert found["main_2"][0].row["w"] == ("layers", "embed")
    assert found["main_2"][0].column["w"] == ("layers", "mlp")
    assert found["main"][0].row["square"] == (None,)  # its shape does not tell which axis it has


def test_an_update_is_traced_once_for_all_steps() -> None:
    learner = Learner(optimizer=Adam.HParams(learning_rate=0.1, clip_gradient_norm_to_value=1.0))
    traces = []

    @jax.jit
    def update(params: Any, state: Any, step: Any) -> Any:
        traces.append(1)
        return learner.update(GRADS, state, params, step=step)[:2]

    params, state = PARAMS, learner.init(PARAMS)
    for step in range(3):
        params, state = update(params, state, step)
    assert len(traces) == 1


@pytest.mark.parametrize(
    ("optimizer", "told"),
    [
        (Adam.HParams(), True),
        (Accumulator.HParams(optimizer_tpl=Sgd.HParams(), num_sub_batches=2), True),
        (Adam.HParams(learning_rate=1e-3), False),
        (OptaxOptimizer.HParams(grad_tx=optax.sgd(0.1)), False),
    ],
)
def test_a_learning_rate_that_was_never_set_is_told(optimizer: Any, told: bool, capsys: Any) -> None:
    Learner(name=f"of_{type(optimizer).__qualname__}", optimizer=optimizer).init(PARAMS)
    assert ("learning_rate is 0, which multiplies every step" in capsys.readouterr().err) is told


@pytest.mark.parametrize(("rate", "told"), [(0.0, True), (0.1, False)])
def test_decay_at_no_rate_beside_a_transformation_with_its_own_is_told(rate: float, told: bool, capsys: Any) -> None:
    decayed = OptaxOptimizer.HParams(grad_tx=optax.sgd(0.1), weight_decay=0.5, learning_rate=rate)
    Learner(optimizer=decayed).init(PARAMS)
    assert ("weight_decay: is 0.5, but is multiplied by learning_rate, which is 0" in capsys.readouterr().err) is told


def test_all_weights_of_a_further_optimizer_may_be_frozen() -> None:
    wanted = {"auxiliary_optimizers": [Sgd.HParams(learning_rate=3.0)], "auxiliary_regex": ["head"]}
    params, state, _ = take(MultiOptimizerLearner(optimizer=SGD, bprop_variable_exclusion="head", **wanted))
    np.testing.assert_array_equal(params["head"], PARAMS["head"])
    np.testing.assert_allclose(params["lm"]["emb"], 0.9, rtol=1e-6)
    assert list(state["rules"]) == ["main"]


def test_weights_may_be_frozen_by_an_optimizer_of_their_own(capsys: Any) -> None:
    wanted = {"auxiliary_optimizers": [Sgd.HParams()], "auxiliary_regex": ["head"]}
    MultiOptimizerLearner(optimizer=SGD, **wanted).init(PARAMS)
    assert "learning_rate is 0" not in capsys.readouterr().err


def test_a_schedule_class_instead_of_its_template_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Sgd.lr_schedule: is .*Give the template of a schedule"):
        Learner(optimizer=Sgd.HParams(learning_rate=1.0, lr_schedule=Linear))
