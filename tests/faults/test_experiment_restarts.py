"""An experiment in two processes, of which one is killed: the restart traces no update, and ends with the same bits."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tests import processes
from tests.experiments.running.tiny import state_of

PAIR = """
from tests.experiments.running.tiny import Tiny

class Pair(Tiny):
    def input_specs(self):
        return {name: ((8, *shape[1:]), kind) for name, (shape, kind) in super().input_specs().items()}
"""
FAULTY = """
import os, signal
from xdpx import TrainerCallback
from xdpx.engines.spmd import steps

noting = steps.Retraces.note

def note(self, function, batch):
    with open(os.environ["TRACES"], "a") as file:
        file.write(f"{function} {os.environ['XDPX_RESTARTS']}\\n")
    noting(self, function, batch)

steps.Retraces.note = note

class Faulty(TrainerCallback):
    def on_step_end(self, args, state, control, **given):
        if (os.environ["RANK"], os.environ["XDPX_RESTARTS"], state.global_step) == ("1", "0", 7):
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_an_experiment_with_a_killed_process_ends_with_the_same_bits_and_traces_once(tmp_path: Path) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules/faulty.py").write_text(FAULTY)
    (tmp_path / "pair.py").write_text(PAIR)
    for name in ("faulty", "undisturbed"):
        line = [
            sys.executable,
            "-m",
            "xdpx.main",
            f"{tmp_path}/pair.py:Pair",
            f"--job_log_dir={tmp_path / name}",
            "--nproc=2",
        ]
        options = ["--memory_copy_interval=2", "--set", "STEPS=10", "--enable_summary_writer=false"]
        words = [*line, *options, *(["--callbacks=faulty:Faulty"] if name == "faulty" else [])]
        here = processes.environment(
            JAX_NUM_CPU_DEVICES="1",
            XDPX_USER_MODULES=str(tmp_path / "modules"),
            TRACES=str(tmp_path / f"{name}.traces"),
        )
        (ended,) = processes.run_together([words], [here], seconds=240)
        assert ended.code == 0, ended.text[-4000:]
        assert ("all are started again (1 of 3 times)" in ended.text) == (name == "faulty")
    traces = (tmp_path / "faulty.traces").read_text().splitlines()
    assert traces.count("update 0") == 2
    assert traces.count("update 1") == 0
    one, other = (state_of(str(tmp_path / name), 10) for name in ("faulty", "undisturbed"))
    assert sorted(one) == sorted(other)
    assert all(np.array_equal(one[name], other[name]) for name in other)
