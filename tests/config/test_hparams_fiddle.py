from typing import Any

import fiddle as fdl
import pytest

from xdpx.config.hparams import BaseHParams, Configurable, build, from_fiddle, sub_config_field, to_fiddle


class Leaf(Configurable):
    class HParams(BaseHParams):
        size: int = 1
        shared_weight_layer_id: str = ""


class Pair(Configurable):
    class HParams(BaseHParams):
        left: BaseHParams = sub_config_field(Leaf.HParams)
        right: BaseHParams = sub_config_field(Leaf.HParams)
        others: Any = None


def test_a_misspelt_field_of_a_config_is_refused_at_its_line_with_the_nearest_name():
    config = Leaf.HParams.config(size=1)
    with pytest.raises(AttributeError, match="Did you mean 'size'"):
        config.sise = 31337


def test_a_misspelt_field_is_refused_when_the_config_is_made():
    with pytest.raises(TypeError, match="Did you mean 'size'"):
        Leaf.HParams.config(sise=1)
    with pytest.raises(TypeError, match="Did you mean 'size'"):
        Leaf.HParams.partial(sise=1)


def test_a_config_shows_its_children_so_that_they_can_be_edited():
    config = Pair.HParams.config()
    config.left.size = 4
    built = build(config)
    assert (built.hparams.left.size, built.hparams.right.size) == (4, 1)


def test_a_partial_builds_a_function_that_takes_the_rest():
    make = build(Leaf.HParams.partial())
    assert (make().size, make(size=6).size) == (1, 6)
    assert fdl.build(Leaf.HParams.partial(size=2))(size=3).size == 3


def test_fiddle_itself_builds_the_owner():
    built = fdl.build(Leaf.HParams.config(size=8))
    assert type(built) is Leaf
    assert built.size == 8


def test_a_template_goes_to_fiddle_and_back():
    template = Pair.HParams(left=Leaf.HParams(size=3), others=[Leaf.HParams(size=4)])
    assert from_fiddle(to_fiddle(template)) == template


def test_a_node_in_two_places_becomes_one_shared_layer():
    leaf = Leaf.HParams.config(size=2)
    config = Pair.HParams.config()
    config.left = leaf
    config.right = leaf
    template = from_fiddle(config)
    assert template.left.shared_weight_layer_id == template.right.shared_weight_layer_id != ""
    again = to_fiddle(template)
    assert again.left is again.right


def test_nodes_that_are_merely_equal_are_not_shared():
    assert not from_fiddle(Pair.HParams.config()).left.shared_weight_layer_id


def test_a_node_of_a_foreign_class_has_no_template_but_can_be_built():
    config = fdl.Config(complex, real=1.0)
    assert build(config) == 1.0
    with pytest.raises(TypeError, match="has no HParams"):
        from_fiddle(config)
