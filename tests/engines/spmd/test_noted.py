import math

import jax.numpy as jnp
import pytest

from xdpx.engines.spmd import noted
from xdpx.engines.spmd.noted import NotedMeans, mean_of, packed


def test_a_micro_batch_that_records_nothing_does_not_count() -> None:
    found = mean_of([{"a": jnp.int32(1)}, {"a": jnp.int32(4), "b": jnp.bfloat16(3)}, {}])
    assert {name: float(value) for name, value in found.items()} == {"a": 2.5, "b": 3.0}


def test_skipped_updates_do_not_count_and_names_may_differ() -> None:
    means = NotedMeans()
    means.add(packed({"a": jnp.float32(1), "b": jnp.float32(8)}, 1.0))
    means.add(packed({"a": jnp.float32(math.nan), "b": jnp.float32(math.inf)}, 0.0))
    means.add(packed({"a": jnp.float32(2)}, 1.0))
    means.add(packed({}, 1.0))
    assert means.take() == {"a": 1.5, "b": 8.0}
    means.add(packed({"a": jnp.float32(1)}, 0.0))
    assert math.isnan(means.take()["a"])
    assert means.take() == {}


def test_values_of_many_updates_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noted, "PENDING_AT_MOST", 4)
    means = NotedMeans()
    for number in range(10):
        means.add(packed({"a": jnp.float32(number)}, 1.0))
        assert len(means._pending) < 4
    assert means.take() == {"a": 4.5}
