"""The stand-in for transformers, each time in a process in which nothing derives from the original Trainer yet."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import processes

FIRST = """
import transformers
import xdpx
xdpx.stand_in_for_transformers()
xdpx.stand_in_for_transformers()  # again changes nothing
from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments, Trainer, TrainingArguments
from transformers.trainer import Trainer as other
from transformers.training_args import TrainingArguments as others
assert Trainer is other is xdpx.Trainer and TrainingArguments is others is xdpx.TrainingArguments
assert Seq2SeqTrainer is xdpx.Seq2SeqTrainer and Seq2SeqTrainingArguments is xdpx.Seq2SeqTrainingArguments
"""
LATE = """
import transformers.trainer
class Mine(transformers.trainer.Trainer): pass
import xdpx
try:
    xdpx.stand_in_for_transformers()
except RuntimeError as error:
    assert "__main__.Mine derives from the original Trainer already" in str(error)
    assert transformers.trainer.Trainer is not xdpx.Trainer
else:
    raise SystemExit("it was not refused")
"""
BOTH = """
import os, sys
import datasets, transformers.modeling_utils, transformers.trainer_utils
from tests.processes import fork
assert not {"transformers.trainer", "transformers.training_args", "xdpx"} & sys.modules.keys()
for number, program in enumerate(sys.argv[1:]):
    _, status = os.waitpid(fork(lambda: exec(program, {"__name__": "__main__"}), f"{number}.txt"), 0)
    print(os.waitstatus_to_exitcode(status))
"""
"""Runs programs in forks of a process that has imported what the original imports: five seconds each otherwise."""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, str]]:
    """Return the exit code and the output of both programs."""
    folder = tmp_path_factory.mktemp("standing_in")
    line = [sys.executable, "-W", "ignore", "-c", BOTH, FIRST, LATE]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=folder, env=processes.environment())
    assert done.returncode == 0, done.stderr[-2000:]
    return [(int(code), Path(folder, f"{number}.txt").read_text()) for number, code in enumerate(done.stdout.split())]


def test_whoever_derives_from_the_original_afterwards_derives_from_ours(ended: list[tuple[int, str]]) -> None:
    code, told = ended[0]
    assert code == 0, told[-2000:]


def test_a_class_that_derives_from_the_original_already_is_named(ended: list[tuple[int, str]]) -> None:
    code, told = ended[1]
    assert code == 0, told[-2000:]
