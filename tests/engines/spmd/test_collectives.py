"""Collectives read from compiled text: kinds, runs, sizes, axes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from xdpx.engines.spmd.collectives import Collective, by_kind, of_program, seconds_on_wire
from xdpx.engines.spmd.hlo_text import plain_source, read_program


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    return jax.make_mesh((1, 4, 2), ("replica", "data", "mdl"), axis_types=(AxisType.Auto,) * 3)


def read_collectives(text: str, mesh: Mesh) -> list[Collective]:
    return of_program(read_program(text), mesh)


def step(lines: str) -> str:
    return f"HloModule m\n\nENTRY %main (p: f32[8]) -> f32[8] {{\n  %p = f32[8]{{0}} parameter(0)\n{lines}}}\n"


@pytest.mark.parametrize(
    ("groups", "axes"),
    [
        ("replica_groups={{0,2,4,6},{1,3,5,7}}", ("data",)),
        ("replica_groups={{0,1},{2,3},{4,5},{6,7}}", ("mdl",)),
        ("replica_groups=[2,4]<=[4,2]T(1,0)", ("data",)),
        ("replica_groups=[4,2]<=[8]", ("mdl",)),
        ("replica_groups=[1,8]<=[8]", ("data", "mdl")),
        ("replica_groups={}", ("data", "mdl")),
        ("replica_groups=mesh['a'=4,'b'=2] {'a'}", ("data",)),
        ("replica_groups=mesh['a'=8] {'a':(4)2}", ("mdl",)),
        ("replica_groups=mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'a'}", ("mdl",)),
        ("replica_groups=mesh['a'=2,'b'=4], device_ids=(0,2,4,6,1,3,5,7) {'b'}", ("data",)),
        ("replica_groups=mesh['a'=8] {'a':(1)4}", ("data",)),
    ],
)
def test_the_axis_is_read_from_every_way_to_write_groups(mesh, groups, axes):
    text = step(f"  ROOT %x = f32[8]{{0}} all-reduce(%p), channel_id=1, {groups}, to_apply=%add\n")
    assert read_collectives(text, mesh)[0].axes == axes


def test_sizes_follow_the_kind(mesh):
    groups = "replica_groups=[2,4]<=[4,2]T(1,0)"
    text = step(
        f"  %a = f32[100]{{0}} all-reduce(%p), {groups}, to_apply=%add\n"
        f"  %b = bf16[100]{{0}} all-gather(%p), {groups}, dimensions={{0}}\n"
        f"  %c = f32[25]{{0}} reduce-scatter(%p), {groups}, dimensions={{0}}, to_apply=%add\n"
        "  %d = f32[10]{0} collective-permute(%p), source_target_pairs={{0,2},{2,4},{4,6},{6,0}}\n"
        f"  %e = (f32[5]{{0}}, f32[20]{{0}}) all-gather-start(%p), {groups}, dimensions={{0}}\n"
    )
    found = {one.kind + str(one.bytes): one for one in read_collectives(text, mesh)}
    assert {name: one.wire_bytes for name, one in found.items()} == {
        "all-reduce400": 600, "all-gather200": 150, "reduce-scatter400": 300, "collective-permute40": 40,
        "all-gather80": 60,
    }  # fmt: skip
    assert found["collective-permute40"].axes == ("data",)


def test_a_scanned_model_split_over_data_gathers_each_layer_and_sums_its_gradient(mesh):
    weights = jax.ShapeDtypeStruct((6, 64, 64), jnp.float32, sharding=NamedSharding(mesh, P(None, "data")))
    rows = jax.ShapeDtypeStruct((8, 64), jnp.float32, sharding=NamedSharding(mesh, P("data")))

    def loss(w, x):
        return jnp.sum(jax.lax.scan(lambda c, one: (jnp.tanh(c @ one), None), x, w)[0])

    compiled = jax.jit(jax.grad(loss), out_shardings=weights.sharding).lower(weights, rows).compile()
    sums = {str(one): one for one in by_kind(read_collectives(compiled.as_text(), mesh))}
    layer = 64 * 64 * 4
    assert sums["all-gather over data"].bytes >= 6 * layer
    assert max(one.bytes for name, one in sums.items() if "all-reduce" in name or "scatter" in name) >= 6 * layer
    assert all(one.axes == ("data",) for one in sums.values())


def test_a_loop_without_a_known_length_counts_once_and_is_noted():
    text = (
        "%body (p: f32[8]) -> f32[8] {\n  ROOT %r = f32[8]{0} all-reduce(%p), replica_groups={}\n}\n\n"
        "ENTRY %main (p: f32[8]) -> f32[8] {\n  ROOT %w = f32[8]{0} while(%p), condition=%cond, body=%body\n}\n"
    )
    program = read_program(text)
    assert (program.runs["body"], program.endless) == (1, 1)


def test_the_place_in_the_model_is_short():
    long = "jit(update)/transpose(jvp(lm))/while/body/closed_call/checkpoint/rematted_computation/ff/dot_general"
    assert plain_source(long) == "lm/ff/dot_general (recomputed)"


def test_time_on_the_wire_is_bytes_over_bandwidth(mesh):
    text = step("  ROOT %x = f32[100]{0} all-reduce(%p), replica_groups=[2,4]<=[4,2]T(1,0), to_apply=%add\n")
    assert np.isclose(seconds_on_wire(read_collectives(text, mesh), 600.0), 1.0)
