import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fiddle as fdl
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xdpx.config.hparams import BaseHParams, build, from_json, sub_config_field, to_json
from xdpx.models import spmd
from xdpx.models.spmd import base_layer
from xdpx.models.spmd.base_layer import BaseLayer, Weight, eval_context, opened, total_aux_loss
from xdpx.models.spmd.initialisers import WeightInit
from xdpx.utils.nested_map import NestedMap

KEY = jax.random.key(0)
ROW = jnp.ones((2, 3))


class Scale(BaseLayer):
    """Multiplies by a square weight, in the style with nested HParams."""

    class HParams(BaseHParams):
        dims: int = 3

    def setup(self):
        self.create_variable("w", Weight((self.dims, self.dims), axes=("embed", "mlp")))
        self.create_variable("count", Weight((), WeightInit.Constant(0.0), trainable=False))

    def __call__(self, x):
        self.add_summary("mean", jnp.mean(x))
        self.add_aux_loss("size", jnp.sum(x), weight=2.0)
        self.update_var("count", self.get_var("count") + 1)
        return x @ self.theta.w


class Pair(BaseLayer):
    """Two children, in the style with fields in the class body."""

    dims: int = 3
    first: BaseHParams = sub_config_field(Scale.HParams)
    second: Any = sub_config_field(Scale.HParams)

    def setup(self):
        self.create_child("a", self.first, dims=self.dims)
        self.create_child("b", self.second)

    def __call__(self, x):
        return self.b(self.a(x))


def _shapes(variables: Any) -> Any:
    return jax.tree.map(jnp.shape, jax.tree.map(opened, variables, is_leaf=lambda leaf: hasattr(leaf, "names")))


def test_both_styles_of_declaring_make_fields_of_module_and_template():
    layer = Pair.HParams(dims=3, first=Scale.HParams(dims=9)).Instantiate()
    assert (layer.dims, layer.first.dims) == (3, 9)
    assert layer.hparams == Pair.HParams(dims=3, first=Scale.HParams(dims=9))
    assert Pair(dims=4).hparams.dims == 4


def test_a_misspelt_field_of_a_layer_is_refused_everywhere():
    for make in (Pair, Pair.HParams, Pair.HParams.config):
        with pytest.raises(TypeError, match="Did you mean 'dims'"):
            make(dimz=3)


def test_weights_are_named_by_child_and_know_their_axes():
    variables = jax.eval_shape(Pair().init, KEY, ROW)
    assert _shapes(variables["params"]) == {"a": {"w": (3, 3)}, "b": {"w": (3, 3)}}
    assert variables["params"]["a"]["w"].names == ("embed", "mlp")


def test_summaries_and_auxiliary_losses_are_collected_when_asked_for():
    variables = Scale().init(KEY, ROW)
    given = {"params": variables["params"], "non_trainable": variables["non_trainable"]}
    _, new = Scale().apply(given, ROW, mutable=["summaries", "aux_loss", "non_trainable"])
    assert new["summaries"]["mean"] == 1.0
    assert [float(part) for part in total_aux_loss(new["aux_loss"])] == [6.0, 2.0]
    assert (opened(variables["non_trainable"]["count"]), opened(new["non_trainable"]["count"])) == (0, 1)
    assert Scale().apply(given, ROW).shape == (2, 3)


def test_nothing_collected_is_no_auxiliary_loss():
    assert [float(part) for part in total_aux_loss({})] == [0.0, 0.0]


def test_children_follow_the_dtypes_of_their_parent_unless_they_say_otherwise():
    template = Pair.HParams(fprop_dtype=jnp.bfloat16, second=Scale.HParams(fprop_dtype=jnp.float32))
    bound = template.Instantiate().bind(template.Instantiate().init(KEY, ROW))
    assert bound.a.theta.w.dtype == jnp.bfloat16
    assert bound.b.theta.w.dtype == jnp.float32
    assert opened(bound.variables["params"]["a"]["w"]).dtype == jnp.float32


def test_the_rule_of_initialisation_passes_on_to_children():
    template = Pair.HParams(params_init=WeightInit.Constant(2.0))
    variables = template.Instantiate().init(KEY, ROW)
    assert jnp.all(opened(variables["params"]["a"]["w"]) == 2.0)


def test_a_split_mapping_of_mesh_axes_takes_the_place_of_logical_axes():
    template = Scale.HParams(weight_split_dims_mapping=[("replica", "data"), None])
    assert jax.eval_shape(template.Instantiate().init, KEY, ROW)["params"]["w"].names == (("replica", "data"), None)
    by_name = Scale.HParams(weight_split_dims_mapping={"w": [-1, 2]})
    assert jax.eval_shape(by_name.Instantiate().init, KEY, ROW)["params"]["w"].names == (None, "mdl")


def test_a_mapping_of_another_rank_is_refused():
    layer = Scale.HParams(weight_split_dims_mapping={"w": ["data"]}).Instantiate()
    with pytest.raises(ValueError, match="one entry per dimension"):
        layer.init(KEY, ROW)


def test_a_name_can_be_taken_once():
    class Twice(Scale):
        def setup(self):
            super().setup()
            self.create_child("dims", Scale.HParams())

    with pytest.raises(ValueError, match="'dims' is already a field"):
        Twice().init(KEY, ROW)


def test_a_weight_without_elements_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    class Wide(BaseLayer):
        width: int = 0

        def setup(self) -> None:
            self.create_variable("w", Weight((3, self.width)))

        def __call__(self, x: Any) -> Any:
            return x @ self.theta.w

    jax.eval_shape(build(Wide.HParams()).init, KEY, ROW)
    assert "w: has no elements, its shape is [3, 0]. Was a size not set?" in capsys.readouterr().err


def test_an_undeclared_weight_is_told_with_the_declared_ones():
    class Wrong(Scale):
        def __call__(self, x):
            return x @ self.theta.v

    with pytest.raises(AttributeError, match="no weight 'v'. Declared: w, count"):
        Wrong().init(KEY, ROW)


def test_shared_layers_have_one_set_of_weights_and_the_sum_of_the_gradients():
    tied = Scale.HParams(shared_weight_layer_id="tied")
    layer = Pair.HParams(first=tied, second=Pair.HParams(first=tied, second=tied)).Instantiate()
    variables = layer.init(KEY, ROW)
    assert _shapes(variables["params"]) == {"tied": {"w": (3, 3)}}
    weight = opened(variables["params"]["tied"]["w"])

    def untied(one: jax.Array, two: jax.Array, three: jax.Array) -> jax.Array:
        return jnp.sum(ROW @ one @ two @ three)

    parts = jax.grad(untied, argnums=(0, 1, 2))(weight, weight, weight)
    whole = jax.grad(lambda w: jnp.sum(layer.apply({**variables, "params": {"tied": {"w": w}}}, ROW)))(weight)
    np.testing.assert_allclose(whole, sum(parts), rtol=1e-5)


def test_shared_layers_with_different_fields_are_refused():
    one = Scale.HParams(shared_weight_layer_id="tied")
    layer = Pair.HParams(first=one, second=one.clone().set(fprop_dtype=jnp.bfloat16)).Instantiate()
    with pytest.raises(ValueError, match="fprop_dtype : float32 -> bfloat16|fprop_dtype : None -> bfloat16"):
        layer.init(KEY, ROW)


def test_a_fiddle_node_in_two_places_is_one_layer():
    node = Scale.HParams.config()
    config = Pair.HParams.config()
    config.first = node
    config.second = node
    variables = build(config).init(KEY, ROW)
    assert len(jax.tree.leaves(variables["params"])) == 1


def test_fiddle_itself_builds_a_tree_of_layers():
    layer = fdl.build(Pair.HParams.config(dims=3))
    assert _shapes(layer.init(KEY, ROW)["params"]) == {"a": {"w": (3, 3)}, "b": {"w": (3, 3)}}


def test_one_built_layer_given_to_two_fields_is_refused_because_its_weights_would_have_no_name():
    child = Scale()
    with pytest.raises(ValueError, match="shared_weight_layer_id"):
        Pair(first=child, second=child)


def test_a_template_of_layers_survives_json():
    template = Pair.HParams(fprop_dtype=jnp.bfloat16, params_init=WeightInit.Gaussian(0.02))
    again = from_json(to_json(template))
    assert again == template
    assert again.Instantiate().compute_dtype == jnp.bfloat16


def test_evaluation_is_a_matter_of_the_surroundings():
    class Tells(BaseLayer):
        def __call__(self):
            return self.do_eval

    assert not Tells().apply({})
    with eval_context():
        assert Tells().apply({})
        with eval_context(False):
            assert not Tells().apply({})


def test_jax_sees_into_nested_maps_in_the_order_of_their_keys():
    batch = NestedMap(b=jnp.ones(2), a=NestedMap(c=jnp.zeros(3)))
    assert [leaf.shape for leaf in jax.tree.leaves(batch)] == [(3,), (2,)]
    doubled = jax.jit(lambda tree: jax.tree.map(lambda leaf: leaf * 2, tree))(batch)
    assert isinstance(doubled, NestedMap)
    assert doubled.b[0] == 2
    assert jax.tree_util.keystr(jax.tree_util.tree_leaves_with_path(batch)[0][0]) == "['a']['c']"


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("cuont", jnp.zeros(()), r"update_var\('cuont'\): has no such variable; those without training are: count"),
        ("count", jnp.zeros(3), r"gets float32\[3\], but is float32\[\]"),
    ],
)
def test_an_update_of_a_variable_that_is_none_or_of_another_shape_is_refused(
    name: str, value: jax.Array, told: str
) -> None:
    class Wrong(Scale):
        def __call__(self, x):
            self.update_var(name, value)
            return super().__call__(x)

    variables = Wrong().init(KEY, ROW)
    with pytest.raises(ValueError, match=told):
        Wrong().apply(variables, ROW, mutable=["non_trainable"])


def test_a_variable_keeps_its_type_when_it_is_updated_in_another() -> None:
    class Half(Scale):
        def __call__(self, x):
            self.update_var("count", jnp.bfloat16(2))
            return x

    _, changed = Half().apply(Half().init(KEY, ROW), ROW, mutable=["non_trainable"])
    assert opened(changed["non_trainable"]["count"]).dtype == jnp.float32


def test_no_layer_has_a_method_under_a_name_that_base_layer_keeps_something_by() -> None:
    for module in pkgutil.walk_packages(spmd.__path__, f"{spmd.__name__}."):
        importlib.import_module(module.name)
    kept = set(re.findall(r'__dict__\W[^"\n]*"(_\w+)"', Path(base_layer.__file__).read_text(encoding="utf-8")))
    assert {"_declared_weights", "_shared_layers"} <= kept
    assert [(kind.__name__, name) for kind in _kinds_of(BaseLayer) for name in kept if hasattr(kind, name)] == []


def _kinds_of(kind: type[Any]) -> Iterator[type[Any]]:
    for below in kind.__subclasses__():
        yield below
        yield from _kinds_of(below)
