"""Fields of experiments: a typo is refused where it is written."""

from collections.abc import Sequence

import pytest

from xdpx.config.faults import ConfigError
from xdpx.experiments import BaseExperiment
from xdpx.experiments.fields import values_by_class, values_of, with_values


class Model(BaseExperiment):
    NUM_LAYERS: int = 2
    MODEL_DIMS: int = 64
    RATE: float = 1e-3
    MICROBATCH_SIZE: int | None = None
    POLICY: str = "nothing"
    SIZES: Sequence[int] = (1, 2)


def test_a_misspelt_field_of_a_subclass_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(AttributeError, match=r"Mine\.MICROBATCH_SIAZE.*Did you mean 'MICROBATCH_SIZE'"):

        class Mine(Model):
            MICROBATCH_SIAZE = 8


def test_a_method_of_pax_that_nothing_calls_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    class Mine(Model):
        def eval_programs(self) -> list[object]:
            return []

    assert "Mine.eval_programs() is never called. Pax's eval_programs is here: datasets()" in capsys.readouterr().err


def test_a_misspelt_field_of_a_mixin_is_refused_where_it_is_mixed_in() -> None:
    class Data:
        MODEL_DIM = 8

    with pytest.raises(AttributeError, match="Did you mean 'MODEL_DIMS'"):
        type("Mixed", (Data, Model), {})


def test_a_new_field_is_declared_by_its_annotation() -> None:
    class Mine(Model):
        NUM_EXPERTS: int = 8

    assert Mine().NUM_EXPERTS == 8


@pytest.mark.parametrize("value", ["2", 2.5, None, True])
def test_a_value_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match=r"NUM_LAYERS: is .*, declared by Model as int"):
        type("Mine", (Model,), {"NUM_LAYERS": value})


def test_an_experiment_takes_values_and_refuses_typos() -> None:
    assert Model(NUM_LAYERS=3).NUM_LAYERS == 3
    with pytest.raises(AttributeError, match="Did you mean 'NUM_LAYERS'"):
        Model(NUM_LAYER=3)
    one = Model()
    with pytest.raises(AttributeError, match="Did you mean 'MODEL_DIMS'"):
        one.MODEL_DIMZ = 3


def test_a_value_may_be_set_on_an_experiment_and_not_on_its_class() -> None:
    one = Model(MODEL_DIMS=8)
    assert (one.MODEL_DIMS, Model.MODEL_DIMS, values_of(one)["MODEL_DIMS"]) == (8, 64, 8)


def test_values_from_text_have_the_type_of_their_field() -> None:
    texts = {"NUM_LAYERS": "1e1", "RATE": "3", "MICROBATCH_SIZE": "None", "POLICY": "5", "SIZES": "[1, 4, 1]"}
    made = with_values(Model, texts)
    assert (made.NUM_LAYERS, made.RATE, made.MICROBATCH_SIZE, made.POLICY, made.SIZES) == (10, 3, None, "5", [1, 4, 1])
    assert made.__name__ == "Model"


def test_all_faults_of_set_are_told_together() -> None:
    with pytest.raises(ConfigError) as raised:
        with_values(Model, {"MODEL_DIMZ": "3", "NUM_LAYERS": "two"})
    assert "Did you mean 'MODEL_DIMS'" in str(raised.value)
    assert "NUM_LAYERS: is 'two'. Use int." in str(raised.value)


def test_fields_are_grouped_by_the_class_that_sets_them_last() -> None:
    class Mine(Model):
        NUM_LAYERS = 4

    groups = dict(values_by_class(Mine))
    assert groups[Mine] == {"NUM_LAYERS": 4}
    assert "NUM_LAYERS" not in groups[Model]
