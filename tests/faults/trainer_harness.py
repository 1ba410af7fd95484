"""Train with the Trainer in forked children, kill them, and compare the results with an undisturbed run.

As a script: `python trainer_harness.py <folder> <kills> <seed> <variant> ...`. Prints one JSON line per finished run,
until there were so many kills: half at a random time, half at a random disk operation.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from tests.faults.resume_harness import (
    STORAGE_VERBS,
    import_what_was_needed,
    in_child,
    learning_imports,
    text_of,
)
from tests.preloaded import SAVING, SHARDING, import_before_forking
from tests.processes import fork
from xdpx import Trainer, TrainingArguments
from xdpx.checkpoints import background, folders
from xdpx.trainer.files.checkpoint_files import TrainerCheckpoint
from xdpx.utils.local_files import LocalFiles

KILLS_PER_RUN = 3
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {"save_steps": 3, "save_total_limit": 2},
    "best": {
        "save_steps": 3, "save_total_limit": 1, "eval_strategy": "steps", "eval_steps": 3,
        "load_best_model_at_end": True,
    },
    "background": {"save_steps": 2, "save_total_limit": 2},
    "accumulated": {"save_steps": 2, "gradient_accumulation_steps": 2, "num_train_epochs": 4},
}  # fmt: skip


class Noisy(torch.nn.Module):
    """Draws random numbers from torch, NumPy and Python in each forward pass."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.3), torch.nn.Linear(16, 1))

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        noise = 0.01 * (np.random.randn() + random.gauss(0, 1)) if self.training else 0.0
        y = self.layers(x).squeeze(-1) + noise
        return {"loss": ((y - labels) ** 2).mean(), "y": y}


class Points(Dataset[dict[str, Any]]):
    """Points of a plane."""

    def __len__(self) -> int:
        return 44

    def __getitem__(self, index: int) -> dict[str, Any]:
        x = torch.randn(8, generator=torch.Generator().manual_seed(index))
        return {"x": x, "labels": float(x.sum())}


def train(folder: Path, variant: str) -> int:
    """Train, or resume; the weights are written at the end."""
    if variant == "background":
        os.environ[background.VARIABLE] = "1"
    common = {"num_train_epochs": 2, "per_device_train_batch_size": 4, "logging_steps": 1, "learning_rate": 0.01}
    settings = {**common, "use_cpu": True, "report_to": "none", "disable_tqdm": True, **VARIANTS[variant]}
    trainer = Trainer(
        Noisy(), TrainingArguments(str(folder), **settings), train_dataset=Points(), eval_dataset=Points()
    )
    trainer.train(resume_from_checkpoint=folders.newest(folder) is not None)
    clock = ("_per_second", "time", "_wait_share")
    history = [{k: v for k, v in row.items() if not any(word in k for word in clock)} for row in kept(trainer)]
    told = {"weights": text_of(trainer.model.state_dict()), "history": history, "best": trainer.state.best_metric}
    (folder / "told.json").write_text(json.dumps(told))
    return 0


def kept(trainer: Any) -> list[dict[str, Any]]:
    """Return the log history without the final summary, which only covers the work of this process."""
    return [row for row in trainer.state.log_history if "train_runtime" not in row]


def counted_train(folder: Path, variant: str, deadly: int) -> int:
    """Train, killing itself before storage operation `deadly` (-1 for never). Prints the number of operations."""
    count = 0

    def counted(verb: str) -> Any:
        original = getattr(LocalFiles, verb)

        def act(self: LocalFiles, *args: Any, **options: Any) -> Any:
            nonlocal count
            reads = verb == "open" and (args[1:] or ("rb",))[0].startswith("r")
            count += not reads
            if count == deadly and not reads:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(self, *args, **options)

        return act

    for verb in STORAGE_VERBS:
        if hasattr(LocalFiles, verb):
            setattr(LocalFiles, verb, counted(verb))
    code = train(folder, variant)
    sys.stdout.write(f"operations {count}\n")
    return code


def left_by(folder: Path) -> dict[str, Any]:
    """Return everything that must not depend on interruptions."""
    found: dict[str, Any] = json.loads((folder / "told.json").read_text())
    found["steps"] = folders.steps(folder)
    for step in found["steps"]:
        path = folder / folders.folder_name(step)
        saved = TrainerCheckpoint.checked(path)
        found[f"optimizer {step}"] = text_of(saved.optimizer())
        found[f"generators {step}"] = text_of(saved.rng())
        found[f"model {step}"] = hashlib.sha256((path / "model.safetensors").read_bytes()).hexdigest()
    found["left over"] = [name for name in os.listdir(folder) if ".tmp-" in name]
    return found


def disturbed(folder: Path, variant: str, seconds: float, operations: int, drawn: random.Random) -> tuple[int, int]:
    """Run the same training repeatedly, killing it up to three times; return (kills, last exit code)."""
    output, kills = folder.with_suffix(".out"), 0
    for _ in range(KILLS_PER_RUN):
        if drawn.random() < 0.5:
            deadly = drawn.randint(1, operations)
            code = in_child(lambda deadly=deadly: counted_train(folder, variant, deadly), output)
        else:
            child = fork(lambda: train(folder, variant), output)
            time.sleep(drawn.random() * seconds)
            os.kill(child, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code != -signal.SIGKILL:
            return kills, code
        kills += 1
    return kills, in_child(lambda: train(folder, variant), output)


def campaign(folder: Path, variant: str, *, kills: int, seed: int) -> None:
    """Kill trainings `kills` times in total, and print the differences of each run."""
    torch.set_num_threads(1)
    folder.mkdir()
    reference, output = folder / "reference", folder / "reference.out"
    in_child(learning_imports(lambda: train(folder / "first", variant), folder / "modules"), output)
    import_what_was_needed(folder / "modules")
    began = time.monotonic()
    if in_child(lambda: counted_train(reference, variant, -1), output) != 0:
        raise SystemExit(output.read_text())
    seconds = time.monotonic() - began
    operations = int(output.read_text().split("operations ")[-1].split()[0])
    expected, struck, drawn = left_by(reference), 0, random.Random(seed)
    while struck < kills:
        run = folder / f"run{struck}-{drawn.randint(0, 999)}"
        times, code = disturbed(run, variant, seconds, operations, drawn)
        struck += times
        found = left_by(run) if code == 0 else {}
        different = sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))
        told = {
            "variant": variant,
            "kills": times,
            "code": code,
            "different": different,
            "left over": found.get("left over"),
            "output": str(run.with_suffix(".out")),
        }
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    import_before_forking(*SHARDING, *SAVING)
    for variant in sys.argv[4:]:
        campaign(Path(sys.argv[1], variant), variant, kills=int(sys.argv[2]), seed=int(sys.argv[3]))
