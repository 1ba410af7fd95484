"""From names of dimensions to places on the mesh."""

import jax
import jax.numpy as jnp
import pytest
from flax import linen as nn
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from xdpx.config.faults import ConfigError
from xdpx.engines.spmd.mesh import make_mesh
from xdpx.engines.spmd.partitioning import (
    batch_axes,
    batch_sharding,
    bytes_per_device,
    idle_axes,
    infeed,
    logical_axes,
    shardings,
    shardings_of,
    spec_of,
    without_boxes,
)  # fmt: skip

RULES = (
    ("batch", ("replica", "data")),
    ("embed", "data"),
    ("mlp", "mdl"),
    ("heads", "mdl"),
    ("stage", "stage"),
    ("kv", None),
)


@pytest.fixture(scope="module")
def mesh():
    return make_mesh([2, 2, 2])


@pytest.mark.parametrize(
    ("shape", "names", "expected"),
    [
        ((8, 8), ("embed", "mlp"), P("data", "mdl")),
        ((8, 8), ("mlp", "heads"), P("mdl")),  # an axis splits one dimension: the first that asks
        ((8, 8, 8), (None, "batch", "mlp"), P(None, ("replica", "data"), "mdl")),
        ((8, 8), ("stage", "kv"), P()),  # this mesh has no stages
        ((8, 8), ("embed",), P("data")),
        ((8, 8), (("replica", "mdl"), "data"), P(("replica", "mdl"), "data")),  # axes of the mesh, as Pax has them
        ((), (), P()),
    ],
)
def test_each_dimension_takes_the_axes_of_its_rule(mesh, shape, names, expected):
    assert spec_of(shape, names, RULES, mesh) == expected


def test_axes_that_do_not_divide_are_left_out_from_the_right_and_reported(mesh):
    told = []
    assert spec_of((6, 7), ("batch", "mlp"), RULES, mesh, report=told.append, name="w") == P("replica")
    assert told == [
        "w: dimension 0 ('batch') of size 6 is not divided by replica 2 x data 2: only replica splits it.",
        "w: dimension 1 ('mlp') of size 7 is not divided by mdl 2: every device keeps it whole.",
    ]


def test_an_axis_without_a_rule_is_refused_with_the_nearest(mesh):
    with pytest.raises(ConfigError, match=r"'embde'.*Did you mean 'embed'\?"):
        spec_of((8,), ("embde",), RULES, mesh)
    with pytest.raises(ValueError, match=r"w: has 1 dimensions, but 2 names"):
        spec_of((8,), ("embed", "mlp"), RULES, mesh, name="w")


def test_boxes_of_flax_name_their_dimensions_also_within_a_scan(mesh):
    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x, _):
            init = nn.with_logical_partitioning(nn.initializers.ones, ("embed", "mlp"))
            return x @ self.param("w", init, (8, 8)), None

    stack = nn.scan(
        Layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=4,
        metadata_params={nn.PARTITION_NAME: "layers"},
    )  # fmt: skip
    boxed = jax.eval_shape(stack().init, jax.random.key(0), jnp.ones((2, 8)), None)["params"]
    assert logical_axes(boxed) == {"w": P("layers", "embed", "mlp")}
    assert without_boxes(boxed)["w"].shape == (4, 8, 8)
    placed = shardings(boxed, (*RULES, ("layers", None)), mesh)
    assert placed == {"w": NamedSharding(mesh, P(None, "data", "mdl"))}
    assert bytes_per_device(without_boxes(boxed), placed) == 4 * 8 * 8 * 4 // 4


def test_names_may_be_tuples_specs_or_nothing(mesh):
    shapes = {name: jax.ShapeDtypeStruct((8, 8), jnp.float32) for name in "abc"}
    placed = shardings_of(shapes, {"a": ("embed", "mlp"), "b": P("embed", None), "c": None}, RULES, mesh)
    assert [place.spec for place in placed.values()] == [P("data", "mdl"), P("data"), P()]


def test_rows_of_a_batch_are_dealt_out_over_replicas_and_data(mesh):
    assert batch_axes(RULES, mesh) == ("replica", "data")
    assert batch_sharding(8, RULES, mesh).spec == P(("replica", "data"))
    assert batch_sharding(3, RULES, mesh).spec == P()
    assert infeed(RULES, mesh) == (0, 1)


def test_axes_that_split_neither_weights_nor_rows_are_named(mesh):
    rows_only = (("batch", "data"),)
    split = NamedSharding(mesh, P(None, ("data", "mdl")))
    assert "mdl 2" not in idle_axes([split], rows_only, mesh)
    assert "mdl 2" in idle_axes([NamedSharding(mesh, P())], rows_only, mesh)
