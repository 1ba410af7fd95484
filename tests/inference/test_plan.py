"""What is to be predicted with, determined from the folder of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from xdpx.inference.plan import InferenceParameters, _values_of_run


@pytest.mark.parametrize(
    ("labels", "own", "expected"),
    [("0\n5\n1\n", "", [0.0, 5.0, 1.0]), ("0\n5\n1\n", "'label_values': None", None), ("no\nyes\n", "", "not there")],
)
def test_a_run_older_than_the_grades_of_classes_has_the_numbers_that_its_labels_are(
    tmp_path: Path, labels: str, own: str, expected: object
) -> None:
    (tmp_path / "args.py").write_text(f"{{{own}}}")
    (tmp_path / "target_map.txt").write_text(labels)
    found = _values_of_run(InferenceParameters(save_dir=str(tmp_path)), "here")
    assert found.get("label_values", "not there") == expected
