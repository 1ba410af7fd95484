import copy
import dataclasses
import pickle
from typing import Any, ClassVar

import pytest

from xdpx.config.hparams import BaseHParams, Configurable, build, diff, sub_config_field, template_field


class Linear(Configurable):
    class HParams(BaseHParams):
        input_dims: int = 0
        output_dims: int = 0
        scale: float = 1.0


class FeedForward(Configurable):
    class HParams(BaseHParams):
        input_dims: int = 0
        names: tuple[str, ...] = ()
        linear_tpl: BaseHParams = sub_config_field(Linear.HParams)

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        self.linear = build(self.hparams.linear_tpl, input_dims=self.hparams.input_dims)


class Wide(FeedForward):
    class HParams(FeedForward.HParams):
        width: int | None = None


class Optimizer(Configurable):
    kind: ClassVar[str] = "gradient"
    learning_rate: float = 0.1
    steps: list[int] = dataclasses.field(default_factory=list)


def test_a_misspelt_field_is_refused_at_its_line_with_the_nearest_name():
    template = Linear.HParams()
    with pytest.raises(AttributeError, match=r"Linear.HParams has no field 'input_dimz'. Did you mean 'input_dims'\?"):
        template.input_dimz = 3


def test_a_misspelt_field_is_refused_on_construction_and_reading_too():
    with pytest.raises(TypeError, match="Its fields: input_dims, output_dims, scale"):
        Linear.HParams(imput_dims=3)
    with pytest.raises(AttributeError, match="Did you mean 'scale'"):
        _ = Linear.HParams().scales


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [
        ("input_dims", "3", "Use int"),
        ("input_dims", 3.0, "Use int"),
        ("input_dims", True, "Use int"),
        ("names", (1, 2), "Use tuple"),
        ("linear_tpl", 3, "Use BaseHParams"),
        ("width", "x", r"Use int \| None"),
    ],
)
def test_a_value_of_another_type_is_refused(field: str, value: Any, wanted: str):
    with pytest.raises(TypeError, match=wanted):
        Wide.HParams(**{field: value})


def test_an_int_is_a_float_and_a_list_a_tuple():
    assert Linear.HParams(scale=2).scale == 2
    assert Wide.HParams(names=["a"]).names == ["a"]


def test_a_type_that_cannot_be_resolved_accepts_everything():
    class Here(BaseHParams):
        field: "NobodyKnows" = 1  # noqa: F821

    assert Here(field="x").field == "x"


def test_templates_of_two_parents_are_not_shared():
    one, two = FeedForward.HParams(), FeedForward.HParams()
    one.linear_tpl.input_dims = 5
    assert two.linear_tpl.input_dims == 0


def test_a_child_stays_a_template_until_its_parent_builds_it():
    template = FeedForward.HParams(input_dims=7)
    template.linear_tpl.output_dims = 2
    built = template.Instantiate()
    assert isinstance(built.hparams.linear_tpl, Linear.HParams)
    assert (built.linear.hparams.input_dims, built.linear.hparams.output_dims) == (7, 2)


def test_what_was_built_holds_a_frozen_copy():
    template = FeedForward.HParams(input_dims=7)
    built = template.Instantiate(names=("a",))
    template.input_dims = 8
    assert (built.hparams.input_dims, built.hparams.names, template.names) == (7, ("a",), ())
    with pytest.raises(AttributeError, match="frozen"):
        built.hparams.input_dims = 1
    with pytest.raises(AttributeError, match="frozen"):
        built.hparams.linear_tpl.input_dims = 1


def test_only_a_frozen_template_has_a_hash():
    template = Linear.HParams()
    with pytest.raises(TypeError, match="freeze"):
        hash(template)
    assert hash(template.clone().freeze()) == hash(Linear.HParams().freeze())


def test_a_clone_can_be_changed_and_leaves_the_original():
    template = FeedForward.HParams().freeze()
    other = copy.deepcopy(template)
    other.linear_tpl.input_dims = 4
    assert template.linear_tpl.input_dims == 0
    assert diff(template, other) == "linear_tpl.input_dims : 0 -> 4"


def test_set_gives_the_template_back():
    assert Linear.HParams().set(input_dims=1, output_dims=2) == Linear.HParams(input_dims=1, output_dims=2)


def test_fields_are_copied_from_a_parent_class():
    template = Wide.HParams().copy_fields_from(FeedForward.HParams(input_dims=3))
    assert template.input_dims == 3


def test_fields_that_have_no_place_must_be_named_to_be_left_out():
    with pytest.raises(AttributeError, match="width"):
        FeedForward.HParams().copy_fields_from(Wide.HParams())
    copied = FeedForward.HParams().copy_fields_from(Wide.HParams(input_dims=2), missing_fields_in_self=["width"])
    assert copied.input_dims == 2


def test_an_override_without_annotation_is_refused_with_the_line_to_write():
    with pytest.raises(TypeError, match="Write `input_dims: int = 3`"):

        class Narrow(FeedForward):
            class HParams(FeedForward.HParams):
                input_dims = 3


def test_an_override_in_a_class_body_is_refused_alike():
    with pytest.raises(TypeError, match="Write `learning_rate: float = 0.5`"):

        class Fast(Optimizer):
            learning_rate = 0.5


@pytest.mark.parametrize("default", [[], {}, set()])
def test_a_mutable_default_is_refused_at_the_class(default: Any):
    with pytest.raises(TypeError, match="default_factory"):
        type("Bad", (BaseHParams,), {"__annotations__": {"field": Any}, "field": default})


def test_a_template_as_default_is_refused_at_the_class():
    with pytest.raises(TypeError, match=r"Write sub_config_field\(Linear.HParams\)"):

        class Bad(BaseHParams):
            child: Any = Linear.HParams()


def test_a_field_may_not_hide_a_method_of_templates():
    with pytest.raises(TypeError, match="'clone' is a method"):

        class Bad(BaseHParams):
            clone: int = 3


def test_a_field_without_default_must_be_given():
    class Strict(BaseHParams):
        batch_size: int

    with pytest.raises(TypeError, match="needs batch_size"):
        Strict()
    assert Strict(batch_size=2).batch_size == 2


def test_fields_of_a_class_body_are_a_template_as_well():
    optimizer = Optimizer(learning_rate=1)
    assert (optimizer.learning_rate, optimizer.steps, Optimizer.HParams._owner) == (1, [], Optimizer)
    assert "kind" not in Optimizer.HParams._field_table
    assert Optimizer.HParams(learning_rate=0.2).build().learning_rate == 0.2


def test_a_class_is_built_from_fields_and_from_its_template_alike():
    assert FeedForward(input_dims=3).hparams == FeedForward(FeedForward.HParams(input_dims=3)).hparams
    with pytest.raises(TypeError, match="Did you mean 'input_dims'"):
        FeedForward(input_dim=3)


def test_a_nested_template_that_derives_from_nothing_gets_the_fields_of_its_parent():
    class Late(FeedForward):
        class HParams(BaseHParams):
            extra: int = 1

    assert issubclass(Late.HParams, FeedForward.HParams)
    assert Late.HParams(extra=2, input_dims=3).Instantiate().hparams.extra == 2


def test_a_subclass_without_own_fields_is_built_as_itself():
    class Same(FeedForward):
        pass

    assert type(Same.HParams().Instantiate()) is Same
    assert Same.HParams is not FeedForward.HParams


def test_values_alone_build_nothing():
    class Plain(BaseHParams):
        a: int = 1

    with pytest.raises(TypeError, match="no class is built"):
        Plain().Instantiate()


def test_what_is_built_already_is_left_alone():
    built = Linear()
    assert build(built) is built


def test_an_empty_child_starts_as_none():
    class Holder(BaseHParams):
        child: BaseHParams | None = template_field(None)

    assert Holder().child is None
    assert Holder(child=Linear.HParams()).child == Linear.HParams()


def test_a_child_field_can_start_with_other_values():
    class Holder(BaseHParams):
        child: BaseHParams = sub_config_field(Linear.HParams, input_dims=9)

    assert Holder().child.input_dims == 9


def test_templates_and_what_they_built_can_be_pickled():
    template = Wide.HParams(names=("a",), width=3).freeze()
    again = pickle.loads(pickle.dumps(template))  # noqa: S301
    assert again == template
    assert again.is_frozen
    assert pickle.loads(pickle.dumps(Optimizer(learning_rate=2.0))).learning_rate == 2.0  # noqa: S301
