"""The engine on eight imitated devices: what it computes does not depend on how it is spread, cut or interrupted."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.tiers import some
from xdpx.config.faults import ConfigError
from xdpx.engines.spmd.engine import SpmdEngine, SpmdOptions
from xdpx.engines.spmd.mesh import make_mesh
from xdpx.engines.spmd.partitioning import path_name

ALL_AXES = ([2, 2, 2], None)
MESHES = [([8, 1, 1], None), ([1, 8, 1], None), ALL_AXES, ([1, 2, 4], None), ([1, 4, 1], [2, 1, 1])]


@pytest.fixture(scope="module")
def spread(engine_on):
    """An engine that uses all three axes."""
    return engine_on([2, 2, 2])


def arrays(state):
    return {path_name(path): np.array(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(state)}


def assert_same_bits(one, other, *, without=()):
    one, other = arrays(one), arrays(other)
    assert one.keys() == other.keys()
    assert [name for name in one if name not in without and one[name].tobytes() != other[name].tobytes()] == []


def places(state):
    return jax.tree.map(lambda leaf: leaf.sharding, state)


@pytest.mark.parametrize(("ici", "dcn"), some(MESHES, [ALL_AXES]), ids=str)
def test_losses_of_fifty_steps_are_those_of_one_device(engine_on, toy, curve, ici, dcn):
    engine = engine_on(ici, dcn)
    _, losses = toy.train(engine, len(curve))
    assert losses == pytest.approx(curve, rel=0, abs=1e-5)
    assert losses[-1] < losses[0] / 2


def test_each_device_holds_its_share_of_weights_and_optimizer(spread):
    state = spread.start(7)
    weight, moment = state["params"]["layer_0"]["w1"], state["opt_state"]["adam"].mu["layer_0"]["w1"]
    for array in (weight, moment, state["opt_state"]["ema"]["layer_0"]["w1"]):
        assert array.shape == (16, 32)
        assert {shard.data.shape for shard in array.addressable_shards} == {(8, 16)}
    assert state["params"]["layer_0"]["scale"].sharding.is_fully_replicated


def test_the_high_bits_of_a_seed_decide_the_weights_too(spread):
    weights = [arrays(spread.start(seed))["params/emb"] for seed in (7, 2**32 + 7)]
    assert not np.array_equal(*weights)


def test_a_run_compiles_once_and_the_state_stays_where_it_was(spread, toy):
    state = spread.start(7)
    before = places(state)
    state, _ = toy.train(spread, 5, state)
    assert places(state) == before == spread.plan.placed
    assert spread.compilations["update 2xint32[8,8] 2xfloat32[8,8]"] == 1
    assert spread._update._cache_size() == len([key for key in spread.compilations if key.startswith("update ")])


@pytest.mark.parametrize("parts", some([2, 4], [4]))
def test_an_update_from_micro_batches_is_that_from_the_whole_batch(engine_on, toy, curve, parts):
    engine = engine_on([1, 2, 1])
    _, losses = toy.train(engine, 10, parts=parts)
    assert losses == pytest.approx(curve[:10], rel=0, abs=1e-5)


def test_micro_batches_of_different_shapes_add_up_too(engine_on, toy):
    engine = engine_on([1, 2, 1])
    batch = toy.batch_of(0)
    cut = [{name: rows[:2] for name, rows in batch.items()}, {name: rows[2:] for name, rows in batch.items()}]
    whole, facts = engine.update(engine.start(7), [batch])
    parts, sums = engine.update(engine.start(7), cut)
    _, again = engine.update(engine.start(7), [batch])
    assert engine.facts_to_host(sums) == pytest.approx(engine.facts_to_host(facts), rel=1e-5)
    assert engine.facts_to_host(again) == engine.facts_to_host(facts)
    # Not the weights: Adam's first step has the length of the rate however small a gradient is.
    found, expected = arrays(parts["opt_state"]["adam"].mu), arrays(whole["opt_state"]["adam"].mu)
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-6)


def test_facts_are_sums_and_counts_by_name(one_device, toy):
    batch = toy.batch_of(3)
    _, facts = one_device.update(one_device.start(7), [batch])
    numbers = one_device.facts_to_host(facts)
    assert numbers["count"] == numbers["num_tokens"] == numbers["weight of accuracy"] == batch["weights"].sum()
    assert numbers["learning_rate"] == pytest.approx(1e-3)
    assert (numbers["clipped"], numbers["skipped"], numbers["is_valid_step"]) == (1, 0, 1)
    assert numbers["grad_norm"] > 1
    assert float(facts["loss_sum"]) == numbers["loss_sum"]


def test_a_metric_called_as_a_fact_of_the_engine_does_not_hide_it(one_device, toy):
    batch = toy.batch_of(3)
    halves = [{name: rows[at : at + 4] for name, rows in batch.items()} for at in (0, 4)]
    for group in ([batch], halves):
        numbers = one_device.facts_to_host(one_device.update(one_device.start(7), group)[1])
        assert (numbers["count"], numbers["sum of count"]) == (batch["weights"].sum(), 7 * batch["weights"].sum())


def test_a_gradient_that_is_no_number_leaves_weights_and_optimizer_as_they_were(spread, toy):
    state, _ = toy.train(spread, 3)
    before = arrays(state)
    broken = toy.batch_of(4)
    broken["weights"] = broken["weights"] * np.float32(np.nan)
    state, facts = spread.update(state, [broken])
    assert_same_bits(before, state, without=("step",))
    assert int(state["step"]) == 4
    assert float(facts["skipped"]) == 1
    state, facts = spread.update(state, [toy.batch_of(5)])
    assert float(facts["skipped"]) == 0


def test_a_batch_without_tokens_that_count_changes_no_number_into_nan(one_device, toy):
    empty = toy.batch_of(0)
    empty["weights"] = np.zeros_like(empty["weights"])
    state, facts = one_device.update(one_device.start(7), [empty])
    assert one_device.facts_to_host(facts)["grad_norm"] == 0
    assert all(np.isfinite(array).all() for array in arrays(state).values())


def test_the_old_state_is_donated_and_nobody_looks_at_it_again(spread, toy):
    old = spread.start(7)
    weight = old["params"]["emb"]
    new, _ = spread.update(old, [toy.batch_of(0)])
    assert weight.is_deleted()
    spread.score(new, toy.batch_of(1))
    spread.snapshot(new)
    spread.weights(new)
    spread.take_summaries()
    new, _ = spread.update(new, [toy.batch_of(1)])
    assert not new["params"]["emb"].is_deleted()


def test_no_step_waits_for_the_device(spread, toy, monkeypatch):
    engine = spread
    state, _ = toy.train(engine, 1)
    monkeypatch.setattr(engine, "_most_inflight", 0)
    batches = [engine.put(toy.batch_of(step)) for step in range(5)]
    array = type(state["step"])

    def waited(*_):
        raise AssertionError("the host waited for the device")

    with monkeypatch.context() as watch:
        for name in ("_value", "block_until_ready", "__array__", "__float__", "__int__", "__bool__"):
            watch.setattr(array, name, property(waited) if name == "_value" else waited)
        with jax.transfer_guard("disallow"):
            for batch in batches:
                state, facts = engine.update(state, [batch])
        with pytest.raises(AssertionError, match="waited"):
            float(facts["loss_sum"])  # it would have been noticed
    assert engine.facts_to_host(facts)["loss_sum"] > 0


def test_the_host_runs_ahead_by_as_many_updates_as_it_may(engine_on, toy):
    engine = engine_on([1, 2, 1])
    toy.train(engine, 6)
    assert len(engine._inflight) == engine.options.max_inflight == 2
    alone = engine_on([1, 1, 1], max_inflight=0)
    toy.train(alone, 3)
    assert not alone._inflight  # a single device is not held back, imitated ones always are
    assert engine_on([1, 2, 1], max_inflight=0)._most_inflight == 2


def test_randomness_depends_on_seed_and_step_alone(toy):
    def losses(ici, seed, steps=3):
        mesh = make_mesh(ici, devices=jax.devices()[: int(np.prod(ici))])
        task = toy.Task(toy.Model(dropout=0.5))
        engine = SpmdEngine(task, mesh=mesh, rules=toy.RULES, options=SpmdOptions(seed=seed), spec=toy.SPEC)
        return toy.train(engine, steps)[1]

    first = losses([1, 1, 1], 5)
    assert losses([1, 2, 2], 5) == pytest.approx(first, rel=0, abs=1e-5)
    assert losses([1, 1, 1], 6)[0] != pytest.approx(first[0], abs=1e-3)


def test_a_snapshot_continues_bit_for_bit_and_on_another_mesh(engine_on, spread, toy):
    state, _ = toy.train(spread, 4)
    saved = spread.snapshot(state)
    assert saved["num_updates"] == 4
    straight, losses = toy.train(spread, 3, state, start=4)
    again, same = toy.train(spread, 3, spread.restore(saved), start=4)
    assert same == losses
    assert_same_bits(straight, again)
    other = engine_on([1, 2, 4])
    moved = other.restore(saved)
    assert_same_bits(spread.restore(saved), moved)
    assert places(moved) == other.plan.placed
    assert toy.train(other, 3, moved, start=4)[1] == pytest.approx(losses, rel=0, abs=1e-5)


def test_snapshots_of_other_models_are_refused_by_name(one_device):
    saved = one_device.snapshot(one_device.start(7))
    saved["tensors"]["params/emb"] = saved["tensors"]["params/emb"][:3]
    saved["tensors"]["params/old"] = saved["tensors"].pop("step")
    with pytest.raises(ConfigError) as caught:
        one_device.restore(saved)
    for part in ("step is missing", "params/old is not used", "params/emb is [3, 16], and [64, 16] is needed"):
        assert part in str(caught.value)
    with pytest.raises(ConfigError, match="format"):
        one_device.restore({"format": "xdpx-pytorch-1"})


def test_scores_are_those_of_averaged_weights_and_of_weights_that_were_kept(engine_on, one_device, toy):
    state, _ = toy.train(one_device, 5)
    batch = toy.batch_of(9)
    scored = one_device.predictions_to_host(one_device.score(state, batch))
    kept = one_device.weights(state)
    np.testing.assert_array_equal(kept["params/emb"].numpy(), state["opt_state"]["ema"]["emb"])
    alone = one_device.with_weights(kept)
    assert alone["opt_state"] is None
    assert one_device.predictions_to_host(one_device.score(alone, batch))["sum of loss"] == scored["sum of loss"]
    plain = engine_on([1, 1, 1], score_averaged=False)
    last = plain.predictions_to_host(plain.score(state, batch))
    assert last["sum of loss"] != pytest.approx(scored["sum of loss"], abs=1e-3)
    assert scored["best"].shape == (8, 8)
    assert scored["weight of loss"] == batch["weights"].sum()


def test_predictions_do_not_depend_on_the_mesh(engine_on, one_device, spread, toy):
    state, _ = toy.train(one_device, 3)
    moved = spread.with_weights(one_device.weights(state))
    batch = toy.batch_of(9)
    expected = one_device.predictions_to_host(one_device.predict(state, batch))["logits"]
    np.testing.assert_allclose(spread.predictions_to_host(spread.predict(moved, batch))["logits"], expected, atol=1e-5)


def test_batches_of_one_step_draw_different_numbers_and_the_same_ones_again(one_device, toy):
    state = one_device.start(7)
    batch = toy.batch_of(0, rows=64)
    draws = [np.asarray(one_device.decode(state, batch, index=index)[1]["next"]).tolist() for index in (0, 1, 0)]
    assert draws[0] == draws[2] != draws[1]


def test_summaries_of_layers_are_means_over_micro_batches_and_updates(one_device, toy):
    groups = [[toy.batch_of(0)], [toy.batch_of(1), toy.batch_of(2)], [toy.batch_of(3, rows=16), toy.batch_of(4)]]
    largest = []
    one_device.take_summaries()
    for group in groups:
        state = one_device.start(7)
        found = [one_device.predictions_to_host(one_device.predict(state, batch))["logits"].max() for batch in group]
        largest.append(np.mean(found))
        one_device.update(state, group)
    assert one_device.take_summaries() == pytest.approx({"logits/largest": np.mean(largest)}, rel=1e-5)
    assert one_device.take_summaries() == {}


def test_dimensions_that_do_not_divide_stay_whole_and_are_reported(toy):
    mesh = make_mesh([1, 4, 2])
    task = toy.Task(toy.Model(dim=18))  # 18 is not divided by 4
    engine = SpmdEngine(task, mesh=mesh, rules=toy.RULES, spec=toy.SPEC)
    assert engine.target["params"]["layer_0"]["w1"].sharding.spec == jax.sharding.PartitionSpec(None, "mdl")
    expected = (
        "params/layer_0/w1: dimension 0 ('embed') of size 18 is not divided by data 4: every device keeps it whole."
    )
    assert expected in engine.reports
    alone = SpmdEngine(task, mesh=make_mesh([1, 1, 1], devices=jax.devices()[:1]), rules=toy.RULES, spec=toy.SPEC)
    expected = toy.train(alone, 3)[1]
    assert toy.train(engine, 3)[1] == pytest.approx(expected, rel=0, abs=1e-5)
    engine.put(toy.batch_of(0, rows=6))
    assert any("the batch: dimension 0 ('batch') of size 6" in line for line in engine.reports)


def test_text_in_a_batch_stays_on_the_host(one_device, toy):
    batch = {**toy.batch_of(0), "keys": np.array(["a", "b"], dtype=object), "ntokens": 3}
    put = one_device.put(batch)
    assert put["keys"] is None
    assert int(put["ntokens"]) == 3


def test_an_update_that_changes_a_type_is_refused_while_it_is_traced(toy):
    class Careless(toy.Learner):
        def update(self, *args, **kwargs):
            params, opt_state, facts = super().update(*args, **kwargs)
            return jax.tree.map(lambda weight: weight.astype(jnp.bfloat16), params), opt_state, facts

    mesh = make_mesh([1, 1, 1], devices=jax.devices()[:1])
    engine = SpmdEngine(toy.Task(learner=Careless()), mesh=mesh, rules=toy.RULES, spec=toy.SPEC)
    state = engine.start(7)
    with pytest.raises(TypeError, match=r"params/emb: the update turned float32\[64, 16\] into bfloat16\[64, 16\]"):
        engine.update(state, [toy.batch_of(0)])


def test_building_an_engine_allocates_nothing(toy):
    before = jax.live_arrays()  # held: those of earlier tests may be collected at any time
    engine = SpmdEngine(toy.Task(), mesh=make_mesh([2, 2, 2]), rules=toy.RULES, spec=toy.SPEC)
    assert len(jax.live_arrays()) == len(before)
    assert engine.target["params"]["emb"].shape == (64, 16)
    assert not engine.compilations
