"""From devices to the host."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from xdpx.engines.spmd import transfer
from xdpx.models.spmd.sharding import TRANSFORMER_RULES


def test_a_tree_arrives_as_arrays_and_plain_numbers():
    tree = {"rows": jnp.arange(6).reshape(3, 2), "half": jnp.full(2, 0.5, jnp.bfloat16), "sum": jnp.float32(1.5),
            "inner": (jnp.zeros(0), None), "text": "as it is"}  # fmt: skip
    found = transfer.tree_to_host(tree)
    np.testing.assert_array_equal(found["rows"], np.arange(6).reshape(3, 2))
    assert (found["half"].dtype, found["half"].tolist()) == (np.float32, [0.5, 0.5])
    assert type(found["sum"]) is float
    assert found["inner"][0].shape == (0,)
    assert (found["inner"][1], found["text"]) == (None, "as it is")


def test_a_tree_arrives_in_one_go(monkeypatch):
    asked = []
    fetch = jax.device_get
    monkeypatch.setattr(jax, "device_get", lambda given: asked.append(given) or fetch(given))
    transfer.tree_to_host({str(number): jnp.full(3, number) for number in range(5)})
    assert len(asked) == 1


def test_numbers_of_every_kind_reach_the_device_and_texts_do_not():
    mesh = Mesh(np.array(jax.devices()[:1]).reshape(1, 1, 1), ("replica", "data", "mdl"))
    kinds = ("bool", "int32", "uint8", "float16", "bfloat16", "complex64")
    batch = {**{kind: np.ones(2, jnp.dtype(kind)) for kind in kinds}, "text": np.array(["a", "b"])}
    there = transfer.Placer(TRANSFORMER_RULES, mesh, print).put(batch)
    assert there.pop("text") is None
    assert {name: value.dtype for name, value in there.items()} == {kind: jnp.dtype(kind) for kind in kinds}
