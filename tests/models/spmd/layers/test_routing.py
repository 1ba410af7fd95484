from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from xdpx.models.spmd.layers.routing import capacity_of, gates_of, route

LOGITS = jnp.asarray(np.random.default_rng(0).normal(size=(2, 6, 4)) * 2, jnp.float32)
ALL = jnp.ones((2, 6))


def test_every_token_finds_its_two_likeliest_experts_with_gates_that_add_up_to_one() -> None:
    routing = route(LOGITS, ALL, experts_per_token=2, capacity=6)
    np.testing.assert_allclose(routing.combine.sum((2, 3)), 1, rtol=1e-6)
    np.testing.assert_array_equal(routing.dispatch.sum((2, 3)), 2)
    _, gates, chosen = gates_of(LOGITS, 2)
    np.testing.assert_allclose(routing.combine[0, 3, chosen[0, 3, 0]].sum(), gates[0, 3, 0], rtol=1e-6)
    assert float(routing.dropped) == pytest.approx(0)


def test_no_slot_holds_two_tokens_and_no_expert_more_than_its_capacity() -> None:
    routing = route(LOGITS, ALL, experts_per_token=2, capacity=2)
    assert int(routing.dispatch.sum(1).max()) == 1
    assert int(routing.dispatch.sum((1, 3)).max()) <= 2
    assert 0 < float(routing.dropped) < 1


def test_first_choices_come_before_second_ones() -> None:
    logits = jnp.log(jnp.array([[[0.3, 0.6, 0.1], [0.6, 0.3, 0.1]]]))
    routing = route(logits, jnp.ones((1, 2)), experts_per_token=2, capacity=1)
    held = np.asarray(routing.dispatch[0, :, :, 0])
    np.testing.assert_array_equal(held, [[False, True, False], [True, False, False]])


def test_padding_takes_no_place_and_does_not_count() -> None:
    counts = ALL.at[:, 4:].set(0)
    routing = route(LOGITS, counts, experts_per_token=2, capacity=6)
    assert not routing.dispatch[:, 4:].any()
    alone = route(LOGITS[:, :4], ALL[:, :4], experts_per_token=2, capacity=6)
    np.testing.assert_allclose(routing.balance, alone.balance, rtol=1e-6)


def test_the_balance_is_one_for_equally_busy_experts_and_as_many_as_they_are_for_one_that_gets_all() -> None:
    equal = jnp.tile(jnp.eye(4) * 1e-3, (1, 2, 1))
    alone = jnp.zeros((1, 8, 4)).at[..., 2].set(30)
    balance = [route(x, jnp.ones((1, 8)), experts_per_token=1, capacity=8).balance for x in (equal, alone)]
    np.testing.assert_allclose(balance, [1, 4], rtol=1e-3)


def test_capacity_is_the_factor_times_an_equal_share() -> None:
    assert capacity_of(16, 4, 2.0) == 8
    assert capacity_of(16, 4, 99.0) == 16
    assert capacity_of(2, 64, 2.0) == 1
    assert capacity_of(16, 64, 2.0, least=4) == 4


def test_groups_of_padding_do_not_change_the_balance() -> None:
    logits = np.random.default_rng(3).normal(size=(3, 6, 4))
    counts = jnp.ones((3, 6)).at[1, 4:].set(0).at[2].set(0)
    found = [route(logits[:n], counts[:n], experts_per_token=2, capacity=6).balance for n in (2, 3)]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)
    nothing = route(logits, jnp.zeros((3, 6)), experts_per_token=2, capacity=6)
    assert nothing.balance == 0
