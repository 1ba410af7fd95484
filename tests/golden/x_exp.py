"""Runs of x-exp: the language model of the examples with two optimizers, and one with accumulation and averaging."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from tests.experiments.running.tiny import state_of
from tests.golden.record import Outcome, Runs, hash_of
from xdpx.main import main
from xdpx.reports.run_logs import read_table

ROOT = Path(__file__).parents[2]
LANGUAGE_MODEL = f"{ROOT}/examples/spmd/my.py:Exp"
TINY = f"{ROOT}/tests/experiments/running/tiny.py:Tiny"
STEPS = 8
SMALL: dict[str, Any] = {
    "NUM_LAYERS": 2, "MODEL_DIMS": 16, "DIMS_PER_HEAD": 8, "MAX_SEQ_LEN": 16, "NEW_CHARACTERS": 4, "MAX_STEPS": STEPS,
    "LR_COS_WARMUP": 2, "LR_COS_DECAY_START": 3, "LR_COS_DECAY_END": STEPS, "CHECKPOINT_EVERY_N_STEPS": STEPS,
    "SUMMARY_INTERVAL_STEPS": 1, "EVAL_INTERVAL_STEPS": STEPS, "EVAL_SKIP_TRAIN": True,
}  # fmt: skip


def train(folder: Path, name: str, experiment: str, fields: dict[str, Any]) -> Outcome:
    """Run an experiment in a new folder, and return the outcome, with moments and averages included in the weights."""
    job = folder / name.replace(" ", "_")
    words = [f"--set={key}={value}" for key, value in fields.items()]
    if main([experiment, f"--job_log_dir={job}", "--device=cpu:50G:16GiB", "--enable_summary_writer=false", *words]):
        raise RuntimeError(f"{name} failed.")
    losses = read_table(str(job / "train.log.tsv"))["loss"]
    return Outcome([float(loss) for loss in losses], hash_of(state_of(str(job), STEPS)))


def language_model(folder: Path, name: str, **fields: Any) -> Outcome:
    """Run the example on a generated text."""
    text = folder / "text"
    text.mkdir(exist_ok=True)
    (text / "train.txt").write_text("All: Speak, speak.\nFirst: You are all resolved?\n" * 40, encoding="ascii")
    (text / "valid.txt").write_text("First: Speak, all.\n" * 10, encoding="ascii")
    return train(folder, name, LANGUAGE_MODEL, {**SMALL, "DATA": str(text), **fields})


RUNS: Runs = {
    "language model": partial(language_model, name="language model"),
    "language model, adafactor": partial(language_model, name="adafactor", OPTIMIZER="sharded_adafactor"),
    "accumulation of 2, EMA": partial(
        train, name="averaged", experiment=TINY, fields={"BATCHES": 2, "EMA": 0.9, "STEPS": STEPS, "LAYERS": 2}
    ),
}
