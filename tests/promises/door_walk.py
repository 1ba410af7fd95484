"""Train briefly through a door in the working directory, and record calls: `walk(door, file)`.

The file has lines `xdpx/file.py:qualified.name`; a `*` marks functions that are called within an update halfway.
"""

from __future__ import annotations

import builtins
import importlib
import json
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import xdpx

PACKAGE = Path(xdpx.__file__).parent
IN_PACKAGE, BEFORE = f"{PACKAGE}/", f"{PACKAGE.parent}/"
CALLED: set[str] = set()
WITHIN: set[str] = set()
UPDATE = 2
resumed = 0


def note(frame: FrameType, event: str, argument: object) -> None:
    """Record a call of our code. The training loop is a generator that is resumed for each update."""
    global resumed
    code = frame.f_code
    if event != "call" or not code.co_filename.startswith(IN_PACKAGE):
        return
    name = f"{code.co_filename.removeprefix(BEFORE)}:{code.co_qualname}"
    resumed += code.co_qualname == "take_steps"
    CALLED.add(name)
    if resumed == UPDATE:
        WITHIN.add(name)


def unrecorded(load: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that imports without recording calls, which would take as long again."""

    def loaded(*words: Any, **more: Any) -> Any:
        recording = sys.gettrace()
        sys.settrace(None)
        try:
            return load(*words, **more)
        finally:
            sys.settrace(recording)

    return loaded


def x_train() -> None:
    """Train a classifier of single texts, without figures, which take longer than all else."""
    from xdpx.run import main
    from xdpx.runs import training

    training.draw_figures = lambda settings: None
    Path("raw").mkdir()
    rows = "".join(f"some text {number % 2} of row {number}\t{'ab'[number % 2]}\n" for number in range(40))
    for split in ("train", "dev"):
        Path(f"raw/{split}.txt").write_text(rows)
    prepro = {"data_source": "raw", "data_dir": "data", "loader": "single", "tokenizer": "space", "max_len": 16}
    train = {"__parent__": "data/meta", "data_dir": "data", "save_dir": "run", "model": "bow", "loss": "cross_entropy"}
    train |= {"embedding_dim": 8, "batch_size": 8, "learning_rate": 0.1, "max_epoch": 2}
    train |= {"eval_interval": -1, "log_interval": 2, "major_metric": "acc"}
    Path("prepro.json").write_text(json.dumps(prepro | {"processor": "single"}))
    Path("train.json").write_text(json.dumps(train))
    assert main(["x-prepro", "prepro.json", "x-train", "train.json"]) == 0


def trainer() -> None:
    """Fit a line to points, with a callback that extends the one of the walk, which does nothing itself."""
    import torch

    class Line(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.slope = torch.nn.Parameter(torch.zeros(1))

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"loss": ((self.slope * x - labels) ** 2).mean()}

    class Extended(xdpx.TrainerCallback):
        def on_step_end(self, *given: Any, **more: Any) -> xdpx.TrainerControl | None:
            return super().on_step_end(*given, **more)

    rows = [{"x": torch.tensor([1.0]), "labels": torch.tensor([2.0])} for _ in range(32)]
    arguments = xdpx.TrainingArguments("out", use_cpu=True, report_to=[], num_train_epochs=1, save_strategy="epoch")
    made = xdpx.Trainer(model=Line(), args=arguments, train_dataset=rows, callbacks=[Extended()])  # type: ignore[arg-type]
    made.train()


def x_exp() -> None:
    """Train the experiment in the guide to extensions, which no other test does."""
    from xdpx.main import main

    guide = (PACKAGE.parent / "docs/extend.md").read_text(encoding="utf-8")
    found = re.search(r"^## An experiment.*?```python\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    assert found is not None
    Path("mine.py").write_text(found[1], encoding="utf-8")
    Path("speech.txt").write_text("".join(f"{number} to be or not\n" for number in range(200)))
    assert main(["--exp=mine.py:Mine", "--job_log_dir=job"]) == 0


def walk(door: str, file: str) -> None:
    """Train through a door, and write what was called."""
    builtins.__import__ = unrecorded(builtins.__import__)
    importlib.import_module = unrecorded(importlib.import_module)
    threading.settrace(note)
    sys.settrace(note)
    {"x_train": x_train, "trainer": trainer, "x_exp": x_exp}[door]()
    sys.settrace(None)
    Path(file).write_text("".join(f"{'* ' * (name in WITHIN)}{name}\n" for name in sorted(CALLED)))
