"""Two real processes run `sharded_steps.py`, once for all tests."""

import json
import sys
from pathlib import Path

import pytest

from tests import processes

SCRIPT = Path(__file__).with_name("sharded_steps.py")
NAMES = ("adamw_torch", "adamw_torch_fused", "adafactor", "sgd", "adagrad", "rmsprop")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharded")
    (ended,) = processes.run_together([[sys.executable, str(SCRIPT), str(folder)]], [processes.environment()])
    said = [path.read_text() for path in folder.glob("said-*.txt")]
    assert ended.code == 0, [ended.text, *said]
    return json.loads((folder / "found.json").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_sharded_weights_move_as_whole_ones_also_after_a_resume(name, found):
    assert found[0][name] < 1e-6


def test_the_count_is_that_of_both_processes_where_losses_are_averaged_over_both(found):
    assert found[1] == [3 + 4, 3]
