"""Train on two processes, one of which may get a signal: `signalled_pair.py FOLDER` runs FOLDER/stages.json.

All processes are forked off this one, which has imported everything. `torchrun ... signalled_pair.py FOLDER NAME` runs
one stage on the processes of a launcher. Each writes NAME/rank-<n>.json at the end, and NAME/stopped-<n>.json if the
signal ends it; FOLDER/ended.json has the exit codes of each stage's processes, and what they left.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.preloaded import SAVING, SHARDING, import_before_forking
from tests.processes import fork_ranks
from xdpx import Trainer, TrainerCallback, TrainingArguments
from xdpx.checkpoints import folders


class Noisy(nn.Module):
    """Depends on the random state of its process, on the order of the data, and on the optimizer state."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x: Any, labels: Any) -> Any:
        y = self.second(nn.functional.dropout(self.first(x), 0.3, self.training)).squeeze(-1)
        return {"loss": ((y - labels) ** 2).mean(), "logits": y}


class Kill(TrainerCallback):
    """Sends the signal to this process only, before an update or in the evaluation after one."""

    def __init__(self, step: int, event: str) -> None:
        self.step = step
        setattr(self, event, self.heard)

    def heard(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            self.step = -1
            os.kill(os.getpid(), signal.SIGTERM)


def train(stage: dict[str, Any], rank: int) -> None:
    """Train, resuming from the newest checkpoint if there is one."""
    os.environ.update(stage["environment"])
    folder = Path(stage["folder"])
    dice = torch.Generator().manual_seed(1)
    rows = [{"x": torch.randn(4, generator=dice), "labels": torch.tensor(float(i % 3))} for i in range(80)]
    args = TrainingArguments(
        str(folder / "out"), use_cpu=True, disable_tqdm=True, save_strategy="epoch", logging_steps=1,
        per_device_train_batch_size=2, num_train_epochs=2, learning_rate=0.01, ddp_timeout=300, fsdp=stage["fsdp"],
        eval_strategy="steps", eval_steps=15, per_device_eval_batch_size=2,
    )  # fmt: skip
    place = (15, "on_prediction_step") if stage["in_evaluation"] else (10, "on_step_begin")
    killed = [Kill(*place)] if rank == stage["killed"] else []
    trainer = Trainer(Noisy(), args, train_dataset=rows, eval_dataset=rows[:41], callbacks=killed)
    try:
        trainer.train(resume_from_checkpoint=any((folder / "out").glob("checkpoint-*")) or None)
    except SystemExit as leaving:
        tell(folder / f"stopped-{rank}.json", {"step": trainer.state.global_step, "code": leaving.code})
        raise
    weights = trainer.strategy.weights(trainer.model_wrapped, wanted=True)
    losses = [row[name] for row in trainer.state.log_history for name in ("loss", "eval_loss") if name in row]
    tell(folder / f"rank-{rank}.json", {"weights": {name: each.tolist() for name, each in weights.items()},
                                        "losses": losses})  # fmt: skip


def left_in(folder: Path) -> dict[str, Any]:
    """Return the results of a training: the names in its folder, the newest checkpoint, and its status."""
    newest = folders.newest(str(folder))
    status = json.loads((folder / "status.json").read_text())["status"]
    return {
        "names": sorted(path.name for path in folder.iterdir()),
        "newest": Path(newest or "").name,
        "status": status,
    }


def tell(path: Path, facts: dict[str, Any]) -> None:
    path.write_text(json.dumps(facts), encoding="utf-8")


def main(folder: str, name: str = "") -> None:
    os.chdir(folder)
    torch.set_num_threads(1)
    stages = json.loads(Path("stages.json").read_text())
    if name:
        train(stages[name], int(os.environ["RANK"]))
        return
    import_before_forking(*SHARDING, *SAVING)
    ended = {}
    for name, stage in stages.items():
        if not stage["by"]:
            codes = fork_ranks(partial(train, stage), 2, name)
            ended[name] = {"codes": codes, **left_in(Path(stage["folder"], "out"))}
    tell(Path("ended.json"), ended)


if __name__ == "__main__":
    main(*sys.argv[1:])
