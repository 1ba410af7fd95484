from __future__ import annotations

import subprocess
import sys

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


def ran(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False)


def test_whoever_derives_from_the_original_afterwards_derives_from_ours() -> None:
    done = ran(FIRST)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_class_that_derives_from_the_original_already_is_named() -> None:
    done = ran(LATE)
    assert done.returncode == 0, done.stderr[-2000:]
