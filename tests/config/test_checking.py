from __future__ import annotations

from typing import Any

import pytest

from xdpx.config.faults import ConfigError, Origin
from xdpx.config.loading import Run, resolve

pytestmark = pytest.mark.usefixtures("rooms")

GOOD: dict[str, Any] = {"shape": "square", "side": 3, "save_dir": "out", "batch_size": 32}


def draw(**values: Any) -> Run:
    return resolve({**GOOD, **values}, "x-draw", source="draw.hjson", paths=False)


def faults(**values: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        draw(**values)
    return str(refused.value)


def test_defaults_are_filled_and_changes_are_marked() -> None:
    run = draw(dropout=0.5, style="plain")
    assert run.values["learning_rate"] == 1e-3
    assert run.changed == {"shape", "side", "save_dir", "batch_size", "dropout"}


def test_selectors_bring_the_keys_of_what_they_name_to_a_fixed_point() -> None:
    run = draw(colour="paint", thickness=5)
    assert run.picks == {("", "command"): "x-draw", ("", "shape"): "square", ("", "colour"): "paint"}
    assert run.parameters("colour").thickness == 5
    assert run.parameters("shape").side == 3


def test_a_prefix_gives_a_second_class_its_own_keys() -> None:
    run = draw(teacher_shape="square", teacher_side=7, teacher_colour="paint")
    assert run.parameters("shape", "teacher_").side == 7
    assert run.parameters("shape").side == 3
    assert run.picks["teacher_", "colour"] == "paint"


def test_a_class_is_built_from_its_own_parameters() -> None:
    assert draw().picked("shape").__name__ == "Square"
    with pytest.raises(KeyError, match="uses no loss"):
        draw().parameters("loss")


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"learning_rte": 1}, "learning_rte: no such key in x-draw. Did you mean 'learning_rate'?"),
    ({"radius": 3.0}, "radius: belongs to shape circle; this run uses shape square."),
    ({"thickness": 3}, "thickness: belongs to colour paint; this run uses colour ink."),
    ({"thikness": 3}, "thikness: no such key in x-draw. Did you mean 'thickness' (of colour paint)?"),
    ({"zork": 1}, "zork: no such key in x-draw."),
    ({"shape": "sqare"}, "shape: no 'sqare' is registered. Did you mean 'square'?"),
    ({"shape": "square # the best"}, "The comment after 'square' was read as part of the text"),
    ({"shape": None}, "shape: is null. Name one of: circle, square."),
    ({"shape": 3}, "shape: is 3. Name one of: circle, square."),
    ({"batch_size": "32"}, "batch_size: is '32'. Use an integer: write 32 without quotes."),
    ({"batch_size": 0}, "batch_size: is 0. Use a number > 0."),
    ({"batch_size": 13}, "batch_size: is 13. Use a luckier number."),
    ({"dropout": 1}, "dropout: is 1. Use a number >= 0 and < 1."),
    ({"sizes": [1, -1]}, "sizes: is -1. Use a number > 0."),
    ({"style": "rihc"}, "style: is 'rihc'. Did you mean 'rich'?"),
    ({"save": False, "save_best": True}, "save_best: is switched off, because save is false. Set save to true"),
    ({"save_above": 0.5}, "save_above: is switched off, because save_best is false."),
    (
        {"interval": "@{batchsize:64}/50"},
        "refers to 'batchsize', which this run does not have. Did you mean 'batch_size'?",
    ),
    ({"interval": "@{batch_size:64}/0"}, "interval: is 0. Use a number > 0."),
    ({"batch_size": "@{side:64}/3"}, "Relative numbers @{...} are not allowed for this key"),
    ({"__parnet__": "x"}, "Did you mean '__parent__'?"),
]


@pytest.mark.parametrize(("values", "words"), WRONG, ids=[next(iter(values)) for values, _ in WRONG])
def test_what_is_wrong_is_told_with_what_to_do(values: dict[str, Any], words: str) -> None:
    text = faults(**values)
    assert words in text
    assert text.startswith("draw.hjson: 1 fault\n")


def test_all_faults_are_told_together() -> None:
    assert faults(batch_size="x", side=1.5, zork=1).startswith("draw.hjson: 3 faults")


def test_a_missing_key_is_told_with_its_meaning_and_type() -> None:
    with pytest.raises(ConfigError, match="batch_size: is missing. x-draw needs it: pictures at once. Use an integer."):
        resolve({"shape": "square", "side": 3, "save_dir": "out"}, "x-draw", source="c", paths=False)


def test_a_misspelt_required_key_is_one_fault() -> None:
    with pytest.raises(ConfigError) as refused:
        resolve({"shape": "square", "side": 3, "save_dir": "o", "batchsize": 3}, "x-draw", source="c", paths=False)
    assert len(refused.value.faults) == 1


def test_keys_of_a_module_whose_name_is_wrong_are_not_called_unknown() -> None:
    assert faults(shape="sqare", dropout=0.3, thickness=3).count("\n") == 1


def test_a_relative_number_follows_its_reference() -> None:
    run = draw(interval="@{batch_size:64}/50")
    assert run.values["interval"] == 100
    assert run.relative == {"interval": "@{batch_size:64}/50"}
    assert "refers to 'interval', which is itself relative" in faults(interval="@{interval:64}/50")


def test_a_switched_off_key_is_left_out_and_its_class_has_the_default() -> None:
    run = draw(save=False)
    assert "save_best" not in run.values
    assert "save_above" not in run.values
    assert run.parameters("command").save_best is False


def test_a_run_is_lenient_with_unknown_keys_only_when_told() -> None:
    run = resolve({**GOOD, "zork": 1}, "x-draw", source="args.py", strict=False, paths=False)
    assert "zork" not in run.values


def test_facts_from_meta_hold_under_every_prefix_and_unwanted_ones_are_dropped() -> None:
    from xdpx.config import checking

    raw = {**GOOD, "shape": "circle", "radius": 1, "num_colours": 7, "__version__": "1", "old_fact": 3}
    raw |= {"teacher_shape": "circle", "teacher_radius": 2}
    del raw["side"]
    meta = frozenset({"num_colours", "old_fact", "__version__"})
    draft = checking.check("x-draw", raw, origins={}, meta_keys=meta)
    assert not draft.faults
    assert draft.values["teacher_num_colours"] == 7
    assert "old_fact" not in draft.values


def test_a_fault_says_where_its_value_was_written() -> None:
    from xdpx.config import checking

    origins = {"side": Origin("a.hjson", 7)}
    draft = checking.check("x-draw", {**GOOD, "side": "x"}, origins=origins, meta_keys=frozenset())
    assert str(draft.faults[0]).startswith("side (a.hjson:7): is 'x'.")


def test_a_default_belongs_to_its_run_alone() -> None:
    draw().values["sizes"].append(9)
    assert draw().values["sizes"] == [3]


def test_a_wrong_reference_does_not_make_what_follows_it_wrong() -> None:
    assert faults(batch_size="x", interval="@{batch_size:64}/50").startswith("draw.hjson: 1 fault")


def test_a_config_for_another_command_is_called_so_once() -> None:
    values = {"data_dir": "d", "max_epoch": 3, "model": "re2", "loss": "cross_entropy", "blocks": 3, "save_dir": "o"}
    with pytest.raises(ConfigError) as refused:
        resolve({**values, "learning_rate": 1.0}, "x-draw", source="train.hjson", paths=False)
    assert "config: looks like one for x-train: 5 of its keys belong there" in str(refused.value)
    assert len(refused.value.faults) == 1


def test_a_key_of_another_command_is_told_to_be_that() -> None:
    assert "max_epoch: belongs to x-train; x-draw does not use it. Remove it." in faults(max_epoch=3)


def test_the_default_of_the_outer_class_holds_and_what_it_requires_is_required() -> None:
    from xdpx.config import checking
    from xdpx.config.declarations import Declaration, Entry
    from xdpx.config.selection import Selected

    def default(*declared: Declaration) -> object:
        one = Selected("", Entry("shape", "any"))
        return checking._default([(one, item) for item in declared])

    required, low, high = Declaration("k", "int"), Declaration("k", "int", 1), Declaration("k", "int", 2)
    nothing = Declaration("k", "int | None", None)
    assert default(low, high) == (1,)
    assert default(required, high) is None
    assert default(low, required) == (1,)
    assert default(nothing, high) == (2,)
    assert default(nothing, required) is None
