"""A planned update against what really is there."""

import jax
import numpy as np
import pytest

from xdpx.engines.spmd.engine import SpmdOptions
from xdpx.engines.spmd.peaks import Device
from xdpx.engines.spmd.planning import plan_update
from xdpx.engines.spmd.verdict import judge

GIB = 2**30


@pytest.fixture(scope="module")
def plans(engine_on, toy):
    made = {}

    def give(*ici, compiling=True):
        if (ici, compiling) not in made:
            engine = engine_on(list(ici))
            made[ici, compiling] = plan_update(
                engine.task, toy.SPEC, mesh=engine.mesh, rules=engine.rules, compiling=compiling
            )
        return made[ici, compiling]

    return give


def test_bytes_of_the_state_are_those_that_a_device_really_holds(plans, engine_on):
    state = engine_on([1, 2, 4]).start(0)
    plan = plans(1, 2, 4)

    def held(tree):
        return sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(tree))

    assert plan.memory.parameters == held(state["params"])
    assert plan.memory.optimizer == held(state["opt_state"])
    assert plan.parameters == sum(leaf.size for leaf in jax.tree.leaves(state["params"]))


def test_flops_are_counted_by_hand_and_do_not_depend_on_the_mesh(plans, toy):
    rows, length, dim, hidden, vocab = toy.ROWS, toy.LENGTH, toy.DIM, 32, toy.VOCAB
    forward = 2 * rows * length * (2 * 2 * dim * hidden + dim * vocab)
    assert plans(1, 2, 4).flops.flops == plans(1, 1, 1).flops.flops == forward
    assert plans(1, 1, 1).flops.training == 3 * forward


def test_one_device_talks_to_nobody_and_eight_do(plans):
    assert plans(1, 1, 1).collectives == []
    axes = {axis for one in plans(1, 2, 4).collectives for axis in one.axes}
    assert axes == {"data", "mdl"}


def test_activations_are_at_least_what_the_backward_pass_must_find(plans, toy):
    memory = plans(1, 1, 1).memory
    hidden = toy.ROWS * toy.LENGTH * 32 * 4
    assert memory.activations >= memory.activation_floor >= 2 * hidden
    assert plans(1, 2, 4).memory.activation_floor < memory.activation_floor


def test_without_compiling_state_and_flops_are_the_same(plans):
    quick, whole = plans(1, 2, 4, compiling=False), plans(1, 2, 4)
    assert (quick.memory.state, quick.flops.flops) == (whole.memory.state, whole.flops.flops)
    assert quick.collectives == []
    assert quick.buffers == []
    assert "compile" not in quick.seconds


def test_an_update_of_several_micro_batches_is_planned_as_one(plans, engine_on, toy):
    engine, one = engine_on([1, 2, 4]), plans(1, 2, 4)
    three = plan_update(engine.task, toy.SPEC, mesh=engine.mesh, rules=engine.rules, micro_batches=3)
    assert (three.rows, three.tokens) == (3 * one.rows, 3 * one.tokens)
    assert three.flops.training == 3 * one.flops.training
    assert three.memory.batch == 3 * one.memory.batch
    assert three.memory.state == one.memory.state
    assert sum(each.count for each in three.collectives) > sum(each.count for each in one.collectives)


def test_the_sum_of_small_gradients_is_kept_in_float32(engine_on, toy):
    engine = engine_on([1, 1, 1])

    class Half(toy.Task):
        def init(self, key, batch):
            return jax.tree.map(lambda leaf: leaf.astype("bfloat16"), super().init(key, batch))

    made = [
        plan_update(Half(), toy.SPEC, mesh=engine.mesh, rules=engine.rules, micro_batches=count, compiling=False).memory
        for count in (1, 2)
    ]
    assert made[0].gradients == made[0].parameters
    assert made[1].gradients == 2 * made[1].parameters


def test_an_update_is_planned_under_the_options_that_it_runs_with(engine_on, toy):
    engine = engine_on([1, 1, 1])
    with pytest.raises(ValueError, match="guessed"):
        plan_update(
            engine.task, toy.SPEC, mesh=engine.mesh, rules=engine.rules, options=SpmdOptions(precision="guessed")
        )


def test_what_does_not_fit_is_blamed_on_the_largest_part(plans):
    plan = plans(1, 2, 4)
    verdict = judge(plan, Device("tiny", 1e12, plan.memory.total // 2, 1e12))
    assert verdict.fits is False
    assert verdict.blame
    assert verdict.hints
    assert judge(plan, Device("large", 1e12, GIB, 1e18)).fits is True
    assert judge(plan, Device("unknown", None, None)).fits is None


def test_a_slow_link_is_blamed_on_its_collective(plans):
    plan = plans(1, 2, 4)
    verdict = judge(plan, Device("slow", 1e15, GIB, 1e3))
    worst = max(plan.collectives, key=lambda one: one.wire_bytes)
    assert verdict.wire_seconds > verdict.compute_seconds
    assert any(worst.kind in blame for blame in verdict.blame)


def test_tensors_say_how_many_devices_hold_the_same(plans):
    largest = plans(1, 2, 4).tensors[0]
    assert largest.bytes == max(one.bytes for one in plans(1, 2, 4).tensors)
    scale = next(one for one in plans(1, 2, 4).tensors if one.name == "params/layer_0/scale")
    assert scale.copies == 8
    assert np.prod([2, 4]) == 8
