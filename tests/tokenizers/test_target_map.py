"""Which labels there are, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest

from xdpx.config.faults import ConfigError
from xdpx.tokenizers.target_map import TargetMap, by_writing, number_of


def test_labels_stand_by_frequency_then_alphabet_special_ones_first() -> None:
    counts = {"b": 3, "A": 3, "UNKNOWN": 1, "c": 5}
    assert TargetMap.by_frequency(counts, ["Unknown"]).labels == ["UNKNOWN", "c", "A", "b"]


def test_a_special_label_that_is_named_twice_is_one_class() -> None:
    assert TargetMap.by_frequency({"bad": 1, "good": 2}, ["Bad", "bad"]).labels == ["bad", "good"]


def test_a_label_with_a_line_break_is_one_line_of_the_file(tmp_path: Path) -> None:
    found = TargetMap.by_frequency({"very\r\n bad": 2, "good": 1})
    found.write(str(tmp_path / "target_map.txt"))
    again = TargetMap.read(str(tmp_path / "target_map.txt"))
    assert again.labels == ["very bad", "good"]
    assert again.classes(["very\r\n bad", "good"]).tolist() == [0, 1]


def test_a_label_is_called_as_it_is_mostly_written() -> None:
    assert by_writing({"pos": 1, "Pos": 2, "neg": 5}) == {"neg": {"neg": 5}, "Pos": {"Pos": 2, "pos": 1}}


def test_labels_that_an_older_map_holds_in_lower_case_are_found() -> None:
    assert TargetMap(["o", "b-loc"]).classes(["B-LOC", "O"]).tolist() == [1, 0]


def test_a_special_label_that_no_sample_has_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"special_targets.*Did you mean 'unknown'"):
        TargetMap.by_frequency({"unknown": 1}, ["unknwon"])


@pytest.mark.parametrize(
    ("label", "told"), [("nan", "number."), ("1e39", "number within float32."), ("1_2", "number.")]
)
def test_what_no_model_can_compute_with_is_no_number(label: str, told: str) -> None:
    with pytest.raises(ConfigError, match=f"'{label}' is not a {told}"):
        TargetMap.by_value(["1.5", label])
    assert number_of(label) is None


def test_a_decimal_comma_is_answered_with_a_point() -> None:
    with pytest.raises(ConfigError, match=r"'3,5' is not a number, .*write a decimal point, and nothing between"):
        TargetMap.by_value(["3,5", "4,0"])


def test_numbers_are_sorted_as_numbers() -> None:
    assert TargetMap.by_number(map(str, [10, 2, 0, 1, 3, 4, 5, 6, 7, 8, 9])).find("2") == 2


@pytest.mark.parametrize("labels", [["1", "2"], ["0", "2"], ["0", "01"], ["0", "x"], ["-1", "0"]])
def test_numbers_with_a_gap_are_refused(labels: list[str]) -> None:
    with pytest.raises(ConfigError, match="labels must be 0 to 1"):
        TargetMap.by_number(labels)


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    TargetMap(["neg", "pos\u2028x", "中性"]).write(str(tmp_path / "target_map.txt"))
    assert TargetMap.read(str(tmp_path / "target_map.txt")).labels == ["neg", "pos\u2028x", "中性"]


def test_a_label_that_stands_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("a\nA\n")
    with pytest.raises(ConfigError, match="'a' twice"):
        TargetMap.read(str(tmp_path / "labels.txt"))


def test_classes_of_labels() -> None:
    assert TargetMap(["neg", "pos"]).classes(["pos", "neg", "x"]).tolist() == [1, 0, -1]
