"""The two trainings of `benchmarks goodput`: x-train on PyTorch, and an experiment on JAX, with two processes each.

As a script, it launches the experiment: `goodput_runs.py FOLDER STEPS PERTURBED`.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

from benchmarks.goodput_stages import FIRST, OF_EXPERIMENT, OF_LAUNCHER, OF_X_TRAIN, STARTED, TRACE, install, tell
from benchmarks.work import DATA
from xdpx import TrainerCallback
from xdpx.commands.experiment import PRELOADED
from xdpx.launch.local import RESTARTS, Restarts, run_together

COPIED_EVERY = 20
"""Updates between two in-memory copies of the state; on average, a fault repeats half as many.

The best number is about sqrt(2 * seconds of a copy * seconds between faults) / seconds of an update (Young, "A first
order approximation to the optimum checkpoint interval", 1974).
"""
UPDATES = 10_000_000
"""More updates than are ever taken, so that the schedule does not depend on when a run ends."""


class Trace(TrainerCallback):
    """Records when each update begins and ends, on the first process, and the ids of all processes.

    Each process also records its CPU seconds until its first update, since it was forked or started.
    """

    def __init__(self) -> None:
        self._folder = os.environ.get(TRACE)
        self._life, self._rank = os.environ.get(RESTARTS, "0"), os.environ.get("RANK", "0")
        self._began, self._cpu, self._first = 0.0, 0.0, True
        if self._folder:
            Path(self._folder, f"pid-{int(self._life):05d}-{self._rank}").write_text(str(os.getpid()))

    def on_step_begin(self, args: Any, state: Any, control: Any, **brought: Any) -> None:
        """Store the start time."""
        self._began, self._cpu = time.monotonic(), time.process_time()

    def on_step_end(self, args: Any, state: Any, control: Any, **brought: Any) -> None:
        """Record the end time."""
        if self._folder and self._first:
            self._first = False
            tell(FIRST, time.process_time() - self._cpu)
            Path(self._folder, f"cpu-{int(self._life):05d}-{self._rank}").write_text(f"{time.process_time():.3f}")
        if self._folder and self._rank == "0":
            with Path(self._folder, "updates.tsv").open("a") as file:
                file.write(f"{self._life}\t{state.global_step}\t{self._began:.6f}\t{time.monotonic():.6f}\n")


def x_train(folder: Path, *, steps: int | None, disturbed: bool) -> list[str]:
    """Write data and config, and return the command line.

    Args:
        folder: for all files.
        steps: number of updates; None to run until stopped.
        disturbed: enable everything that lets it survive faults.
    """
    name = "disturbed" if disturbed else "undisturbed"
    if not (folder / "raw").is_dir():
        _write_rows(folder)
    survives = {
        "save_in_background": True, "save_interval": 1000, "memory_copy_interval": COPIED_EVERY,
        "max_restarts": 100_000,
    }  # fmt: skip
    config = {
        "__parent__": str(folder / "data/meta"), "data_dir": str(folder / "data"), "save_dir": str(folder / name),
        "model": "cls_cnn", "loss": "cross_entropy", "embedding_dim": 192, "hidden_size": 192, "dropout": 0.1,
        "max_update": UPDATES, "batch_size": 64, "learning_rate": 1e-4, "eval_interval": -1, "major_metric": "acc",
        "log_interval": 20, "save_full_checkpoint": True, "resume": "auto", "cuda": False, "nproc": 2,
        "callbacks": ["tracing:Trace"], "train_steps": steps, **(survives if disturbed else {}),
    }  # fmt: skip
    (folder / f"{name}.json").write_text(json.dumps(config))
    return [sys.executable, "-m", "xdpx.run", "x-train", str(folder / f"{name}.json")]


def trace_x_train() -> None:
    """Make the stages of a restart record their times in this process."""
    if parent_process() is None:
        install(OF_LAUNCHER)
    else:
        tell(STARTED, time.process_time())
        install(OF_X_TRAIN)


def _write_rows(folder: Path) -> None:
    drawn = random.Random(0)
    (folder / "raw").mkdir(parents=True)
    (folder / "modules").mkdir()
    text = "from benchmarks.goodput_runs import Trace, trace_x_train\n\ntrace_x_train()\n"
    (folder / "modules/tracing.py").write_text(text)
    for split, count in (("train", 20_000), ("dev", 200)):
        rows = []
        for _ in range(count):
            label = drawn.randint(0, 1)
            words = [f"w{drawn.randint(200 * label, 399 + 200 * label)}" for _ in range(drawn.randint(40, 60))]
            rows.append(f"{' '.join(words)}\t{'ab'[label]}\n")
        (folder / "raw" / f"{split}.txt").write_text("".join(rows))
    config = {"data_source": str(folder / "raw"), "data_dir": str(folder / "data"), "processor": "single"}
    (folder / "prepro.json").write_text(json.dumps({**config, "loader": "single", "tokenizer": "space", "max_len": 64}))


def experiment(folder: Path, *, steps: int | None, disturbed: bool) -> list[str]:
    """Return the command line of the experiment; arguments as for `x_train`."""
    words = [str(folder / ("disturbed" if disturbed else "undisturbed")), str(steps or UPDATES), str(int(disturbed))]
    return [sys.executable, "-m", "benchmarks.goodput_runs", *words]


def be_one_of_two(folder: str, steps: int, disturbed: bool) -> None:
    """Train the experiment as one of the launched processes."""
    tell(STARTED, time.process_time())
    install(OF_EXPERIMENT)
    import jax

    from xdpx.experiments.lm.c4 import C4UnsupervisedDataset
    from xdpx.experiments.running import run

    class Packed(C4UnsupervisedDataset):
        ICI_MESH_SHAPE = (2, 1, 1)
        TRAIN_DATA = str(DATA / "sst2/train.tsv")
        VOCABULARY = "characters"
        NUM_LAYERS, MODEL_DIMS, DIMS_PER_HEAD, VOCAB_SIZE, MAX_SEQ_LEN, PERCORE_BATCH_SIZE = 2, 64, 32, 256, 64, 4
        LR_SCHEDULE = "constant"
        EVAL_INTERVAL_STEPS = 0
        MAX_STEPS = steps
        CHECKPOINT_EVERY_N_STEPS = 1000 if disturbed else UPDATES
        CHECKPOINT_MAX_TO_KEEP = 3

    jax.config.update("jax_compilation_cache_dir", str(Path(folder).parent / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    options: dict[str, Any] = {"jax_fully_async_checkpoint": disturbed, "callbacks": [Trace()]}
    options["memory_copy_interval"] = COPIED_EVERY if disturbed else 0
    sys.exit(run(
        Packed, job_log_dir=folder, plots=False, enable_summary_writer=False, **options,
    ))  # fmt: skip


def launch(folder: str, steps: str, disturbed: str) -> int:
    """Start the two processes of the experiment, and restart them if they are disturbed."""
    os.environ["JAX_NUM_CPU_DEVICES"] = "1"
    most = 100_000 if disturbed == "1" else 0
    imported = (*PRELOADED, "xdpx.experiments.lm.c4", "benchmarks.goodput_runs")
    install(OF_LAUNCHER)
    restarts = Restarts(most, None, imported, threads=1)
    return run_together(2, be_one_of_two, folder, int(steps), disturbed == "1", restarts=restarts)


if __name__ == "__main__":
    sys.exit(launch(*sys.argv[1:]))
