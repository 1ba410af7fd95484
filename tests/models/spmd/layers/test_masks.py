import jax.numpy as jnp
import numpy as np

from xdpx.models.spmd.layers.masks import all_of, causal_mask, padding_mask, prefix_mask, segment_mask


def test_a_causal_mask_is_a_lower_triangle():
    np.testing.assert_array_equal(causal_mask(4)[0, 0], np.tril(np.ones((4, 4), bool)))


def test_segments_see_themselves_only():
    mask = segment_mask(jnp.array([[1, 1, 2, 0]]))[0, 0]
    expected = [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    np.testing.assert_array_equal(mask, np.array(expected, bool))


def test_segments_of_a_memory_can_differ():
    mask = segment_mask(jnp.array([[1, 2]]), jnp.array([[1, 1, 2]]))[0, 0]
    np.testing.assert_array_equal(mask, [[True, True, False], [False, False, True]])


def test_padding_is_seen_by_nobody():
    np.testing.assert_array_equal(padding_mask(jnp.array([[0.0, 1.0]])), [[[[True, False]]]])


def test_a_prefix_is_seen_by_all():
    mask = prefix_mask(jnp.array([[1, 1, 0, 0]]))[0, 0]
    np.testing.assert_array_equal(mask, np.tril(np.ones((4, 4), bool)) | np.array([True, True, False, False]))


def test_masks_are_joined_and_none_allows_all():
    assert all_of(None, None) is None
    one, two = causal_mask(2), segment_mask(jnp.array([[1, 2]]))
    np.testing.assert_array_equal(all_of(None, one, two)[0, 0], np.eye(2, dtype=bool))
