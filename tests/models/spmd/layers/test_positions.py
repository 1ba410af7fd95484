import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
from transformers.models.t5.modeling_t5 import T5Attention

from xdpx.models.spmd.layers.positions import (
    PositionalEmbedding,
    RelativeBias,
    RotaryPositionalEmbedding,
    TrainablePositionalEmbedding,
    default_positions,
    relative_buckets,
)

KEY = jax.random.key(0)
POSITIONS = np.array([[0, 1, 2, 0, 1], [3, 4, 5, 6, 7]], np.int32)


def test_sinusoids_are_those_of_the_closed_form():
    out = np.asarray(PositionalEmbedding(embedding_dims=6).apply({}, POSITIONS))
    for i in range(3):
        wave = 10_000.0 ** (-i / 2)
        np.testing.assert_allclose(out[..., i], np.sin(POSITIONS * wave), atol=1e-6)
        np.testing.assert_allclose(out[..., 3 + i], np.cos(POSITIONS * wave), atol=1e-6)


def test_an_odd_width_ends_with_a_zero():
    out = PositionalEmbedding(embedding_dims=5).apply({}, POSITIONS)
    assert out.shape == (2, 5, 5)
    assert jnp.all(out[..., 4] == 0)


@pytest.mark.parametrize("lookup_style", ["index", "matmul"])
def test_trained_positions_are_rows_of_a_table_and_its_last_beyond(lookup_style: str):
    layer = TrainablePositionalEmbedding(max_seq_length=6, embedding_dims=4, lookup_style=lookup_style)
    variables = layer.init(KEY, POSITIONS)
    box = variables["params"]["table"]["emb_var"]
    assert (box.value.shape, box.names) == ((6, 4), (None, "embed"))
    np.testing.assert_array_equal(layer.apply(variables, POSITIONS), box.value[np.minimum(POSITIONS, 5)])


def test_rotations_are_those_of_llama():
    x = np.random.default_rng(0).normal(size=(2, 5, 3, 8)).astype(np.float32)
    ours = RotaryPositionalEmbedding(embedding_dims=8, max_timescale=500.0).apply({}, x, POSITIONS)
    inverse = 1.0 / 500.0 ** (torch.arange(0, 8, 2) / 8)
    angles = torch.tensor(POSITIONS)[..., None] * inverse
    both = torch.cat([angles, angles], dim=-1)
    query = torch.tensor(x).transpose(1, 2)
    theirs, _ = apply_rotary_pos_emb(query, query, both.cos(), both.sin())
    np.testing.assert_allclose(ours, theirs.transpose(1, 2), atol=1e-5)


def test_rotated_products_depend_on_the_distance_only():
    layer = RotaryPositionalEmbedding(embedding_dims=8)
    x = np.random.default_rng(0).normal(size=(2, 1, 1, 8)).astype(np.float32)

    def product(first: int, second: int) -> float:
        rotated = [layer.apply({}, x[i][None], np.array([[at]])) for i, at in enumerate((first, second))]
        return float(jnp.sum(rotated[0] * rotated[1]))

    assert product(3, 7) == pytest.approx(product(103, 107), abs=1e-4)


def test_an_odd_width_cannot_rotate():
    with pytest.raises(ValueError, match="even number"):
        RotaryPositionalEmbedding(embedding_dims=7).init(KEY, jnp.ones((1, 1, 1, 7)), jnp.zeros((1, 1)))


@pytest.mark.parametrize("bidirectional", [True, False])
def test_buckets_of_distances_are_those_of_t5(bidirectional: bool):
    relative = np.arange(-300, 300)[None]
    ours = relative_buckets(relative, 32, max_distance=128, bidirectional=bidirectional)
    theirs = T5Attention._relative_position_bucket(torch.tensor(relative), bidirectional, 32, 128)
    np.testing.assert_array_equal(ours, theirs)


def test_the_bias_is_a_row_of_the_table_for_each_pair():
    layer = RelativeBias(num_heads=2, num_buckets=8, max_distance=16)
    variables = layer.init(KEY, POSITIONS, POSITIONS)
    table = variables["params"]["wrb"].value
    out = layer.apply(variables, POSITIONS, POSITIONS)
    assert out.shape == (2, 2, 5, 5)
    np.testing.assert_array_equal(out[1, :, 4, 2], table[2])
    np.testing.assert_array_equal(out[1, :, 2, 4], table[0])


def test_positions_count_from_zero_in_every_row():
    np.testing.assert_array_equal(default_positions(2, 3), [[0, 1, 2], [0, 1, 2]])
