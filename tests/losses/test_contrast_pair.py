"""Rows of all processes are each other's negatives: one real process and two run `contrast_pair.py`."""

import sys
from pathlib import Path

import pytest
import torch

from tests import processes

SCRIPT = str(Path(__file__).with_name("contrast_pair.py"))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("contrast")
    (ended,) = processes.run_together([[sys.executable, SCRIPT, str(folder)]], [processes.environment()])
    said = [path.read_text()[-4000:] for path in folder.glob("said-*.txt")]
    assert ended.code == 0, [ended.text, *said]
    return [torch.load(folder / f"{size}.pt", weights_only=True) for size in (1, 2)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["losses", "norms", "weights"])
def test_two_processes_with_half_batches_train_as_one_with_whole_ones(name, found):
    one, two = found
    assert torch.allclose(one[name], two[name], atol=1e-5)
    assert len(one["losses"]) == 3
    assert one["losses"].std() > 1e-3


@pytest.mark.slow
def test_gradients_come_back_from_all_processes_also_where_their_rows_differ_in_number(found):
    for each in found:
        assert float(each["loss"]) < 1e-5
        assert float(each["gradient"]) < 1e-5 < float(each["size"])


@pytest.mark.slow
def test_scores_do_not_depend_on_the_number_of_processes(found):
    assert [float(each["scored_together"]) for each in found] == [0.0, 0.0]
