import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from xdpx.config.faults import ConfigError
from xdpx.models.spmd.sharding import (
    PIPELINE_RULES,
    TRANSFORMER_RULES,
    axes_from_mapping,
    constrain,
    placed,
    resolve,
    without_mesh_axes,
)

MESH = {"replica": 2, "data": 2, "mdl": 2}


def _mesh() -> jax.sharding.Mesh:
    return jax.make_mesh((2, 2, 2), ("replica", "data", "mdl"), axis_types=(AxisType.Auto,) * 3)


def test_weights_are_split_over_data_and_mdl_and_rows_over_replica_and_data():
    assert resolve(("embed", "mlp"), (8, 8), TRANSFORMER_RULES, MESH) == PartitionSpec("data", "mdl")
    spec = resolve(("batch", "length"), (8, 8), TRANSFORMER_RULES, MESH)
    assert spec == PartitionSpec(("replica", "data"), None)


def test_a_dimension_that_is_not_divided_stays_whole():
    assert resolve(("vocab", "embed"), (7, 8), TRANSFORMER_RULES, MESH) == PartitionSpec(None, "data")


def test_of_several_mesh_axes_those_that_divide_are_kept():
    assert resolve(("batch",), (2,), TRANSFORMER_RULES, MESH) == PartitionSpec("replica")


def test_a_mesh_axis_splits_one_dimension_only():
    assert resolve(("mlp", "heads"), (8, 8), TRANSFORMER_RULES, MESH) == PartitionSpec("mdl", None)


def test_mesh_axes_that_are_not_there_are_left_out():
    assert resolve(("batch", "mlp"), (8, 8), TRANSFORMER_RULES, {"data": 2}) == PartitionSpec("data", None)


def test_pipelines_split_stages():
    assert resolve(("stage",), (2,), PIPELINE_RULES, {"stage": 2}) == PartitionSpec("stage")


def test_an_unknown_axis_and_too_many_axes_are_refused():
    with pytest.raises(ValueError, match="'embedd' is neither a logical axis nor an axis of the mesh"):
        resolve(("embedd",), (8,), TRANSFORMER_RULES, MESH)
    with pytest.raises(ValueError, match="Give one per dimension"):
        resolve(("embed", "mlp"), (8,), TRANSFORMER_RULES, MESH)


def test_split_mappings_are_read_in_every_spelling():
    assert axes_from_mapping([0, -1, None, "mdl", ["replica", "data"]]) == (
        "replica",
        None,
        None,
        "mdl",
        ("replica", "data"),
    )


def test_without_a_mesh_nothing_is_asked():
    x = jnp.ones((2, 3))
    assert constrain(x, ("nonsense", "nonsense")) is x


def test_activations_are_split_while_a_program_is_traced_for_a_mesh():
    def program(x: jax.Array) -> jax.Array:
        return constrain(x * 2, ("activation_batch", "activation_mlp"))

    mesh = _mesh()
    with placed(mesh):
        out = jax.jit(program)(jax.device_put(np.ones((8, 4)), jax.NamedSharding(mesh, PartitionSpec())))
    assert out.sharding.shard_shape(out.shape) == (2, 2)


def test_hidden_mesh_axes_are_not_named():
    def program(x: jax.Array) -> jax.Array:
        with without_mesh_axes("mdl"):
            return constrain(x, ("activation_batch", "activation_mlp"))

    with placed(_mesh()):
        assert "mdl" not in jax.jit(program).lower(jnp.ones((8, 4))).as_text().split("sharding_constraint", 1)[1][:80]


def test_a_split_mapping_with_the_index_of_no_axis_is_refused_with_the_axes():
    with pytest.raises(
        ConfigError, match=r"\[5, -1\] has axis 5 of the mesh. Count from 0 to 2 \(replica, data, mdl\)"
    ):
        axes_from_mapping([5, -1])
