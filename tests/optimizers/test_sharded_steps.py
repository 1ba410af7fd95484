"""Two real processes run `sharded_steps.py`, once for all tests."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("sharded_steps.py")
NAMES = ("adamw_torch", "adamw_torch_fused", "adafactor", "sgd", "adagrad", "rmsprop")


@pytest.fixture(scope="module")
def found():
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", str(SCRIPT)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("found|"))
    return [ast.literal_eval(part) for part in line.split("|")[1:]]


@pytest.mark.parametrize("name", NAMES)
def test_sharded_weights_move_as_whole_ones(name, found):
    assert found[0][name] < 1e-6


def test_the_count_is_that_of_both_processes_where_losses_are_averaged_over_both(found):
    assert found[1] == [3 + 4, 3]
