from __future__ import annotations

import numpy as np
import pytest

from xdpx.models.spmd.exchange.maps import Exchange, WeightPair, linear, same

HEADS = WeightPair("layers/{layer}/query", "h.{layer}.q", (6, 4), (2, 3, 4), (2, 0, 1))
PAIRS = (same("embedding/w", "wte", 5, 4), linear("top/w", "head", 4, 5), HEADS)


def table() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    sizes = {"wte": (5, 4), "head": (5, 4), "h.0.q": (6, 4), "h.1.q": (6, 4)}
    return {name: draw.normal(size=size).astype(np.float32) for name, size in sizes.items()}


def test_weights_come_in_and_go_out_bit_for_bit() -> None:
    exchange = Exchange(PAIRS, layers=2)
    back = exchange.give(exchange.take(table()))
    assert back.keys() == table().keys()
    for name, value in table().items():
        np.testing.assert_array_equal(back[name], value)


def test_a_linear_layer_and_heads_compute_the_same_on_both_sides() -> None:
    tree, x = Exchange(PAIRS, layers=2).take(table()), np.ones(4, np.float32)
    np.testing.assert_allclose(x @ tree["top"]["w"], table()["head"] @ x, rtol=1e-6)
    heads = np.einsum("d,dnh->nh", x, tree["layers"]["1"]["query"])
    np.testing.assert_allclose(heads.reshape(-1), table()["h.1.q"] @ x, rtol=1e-6)


@pytest.mark.parametrize("leading", [(4,), (2, 2), (1, 2, 2)])
def test_stacked_layers_hold_the_layers_in_order(leading: tuple[int, ...]) -> None:
    pair = same("stack/w", "h.{layer}.w", 3)
    exchange = Exchange((pair,), layers=4, stacked=leading)
    given = {f"h.{n}.w": np.full(3, n, np.float32) for n in range(4)}
    tree = exchange.take(given)
    assert tree["stack"]["w"].shape == (*leading, 3)
    np.testing.assert_array_equal(tree["stack"]["w"].reshape(4, 3)[:, 0], [0, 1, 2, 3])
    np.testing.assert_array_equal(exchange.give(tree)["h.2.w"], given["h.2.w"])


def test_all_that_does_not_fit_is_told_at_once() -> None:
    bad = table()
    bad["h.1.qq"] = bad.pop("h.1.q")
    bad["head"] = bad["head"].T
    with pytest.raises(ValueError) as raised:
        Exchange(PAIRS, layers=2).take(bad)
    assert "missing: h.1.q. Did you mean 'h.1.qq'?" in str(raised.value)
    assert "not part of this model: h.1.qq" in str(raised.value)
    assert "head: has the shape (4, 5), but the configuration says (5, 4)." in str(raised.value)


def test_what_has_no_place_here_is_left_out_by_the_beginning_of_its_name() -> None:
    extra = table() | {"pooler.dense.weight": np.zeros(3)}
    Exchange(PAIRS, layers=2, left_out=("pooler.",)).take(extra)


def test_a_tree_of_another_model_is_refused_by_path() -> None:
    exchange = Exchange(PAIRS, layers=2)
    tree = exchange.take(table())
    del tree["layers"]["1"]
    with pytest.raises(ValueError, match="no layers/1/query"):
        exchange.give(tree)
