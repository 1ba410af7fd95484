"""Search with x-tune in forked processes, kill the driver with or without its trials, and compare the results.

As a script: `python tuning_harness.py <folder> <trials> <kills> <seed> <schedule> [<how> ...]`. Prints one JSON line.
Without `how`, all kinds of kills are used: see `kill_some`.
Large modules are imported once, before forking, so that each driver and stage starts within milliseconds.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.faults.resume_harness import import_what_was_needed, in_child, learning_imports, make_data
from tests.preloaded import import_before_forking
from tests.processes import fork
from xdpx import run as door
from xdpx.tuning import overview
from xdpx.tuning.executors import local

SPACE = {
    "learning_rate": {"type": "float", "values": [1e-4, 1e-1], "log": True},
    "dropout": {"type": "float", "values": [0.0, 0.5]},
    "batch_size": {"type": "categorical", "values": [8, 16]},
}
BASE: dict[str, Any] = {
    "model": "cls_cnn", "loss": "cross_entropy", "embedding_dim": 8, "hidden_size": 8, "max_update": 24,
    "batch_size": 16, "learning_rate": 0.01, "lr_scheduler": "one_cycle", "warmup_steps": 0.1, "eval_interval": 4,
    "major_metric": "acc", "log_interval": 8, "plots": False,
}  # fmt: skip
HOW = ["driver", "driver", "all", "all", "trial", "gently"]
SCHEDULES: dict[str, dict[str, Any]] = {
    "bracket": {"schedule": "bracket", "assess_interval": 4, "min_ref": 1, "cull_keep_ratio": 0.5},
    "asha": {"schedule": "asha"},
}


def write_configs(folder: Path, save_dir: Path, *, trials: int, schedule: str) -> Path:
    """Write the three configs of a search, and return the path of x-tune's."""
    base = {"__parent__": f"{folder}/data/meta", "data_dir": f"{folder}/data", "save_dir": "unused", **BASE}
    (folder / "train.json").write_text(json.dumps(base))
    (folder / "space.json").write_text(json.dumps(SPACE))
    keys: dict[str, Any] = {"space_config": "./space", "base_config": "./train", "save_dir": str(save_dir)}
    keys |= {"max_trials": trials, "parallel_runs": 4, "available_rss": 4, **SCHEDULES[schedule]}
    path = folder / f"{save_dir.name}.json"
    path.write_text(json.dumps(keys))
    return path


def searching(config: Path) -> Callable[[], int]:
    """Return a function that searches, with stages forked off the driver."""

    def work() -> int:
        local.START = "fork"
        return door.main(["x-tune", str(config)])

    return work


def left_by(folder: Path) -> dict[str, str]:
    """Return everything that must not depend on kills: both tables, and a hash of each trial's best weights."""
    found = {name: (folder / name).read_text() for name in ("decisions.tsv", "results.tsv")}
    for path in sorted(folder.glob("trial_*/checkpoint-*.pt")):
        weights = torch.load(path, weights_only=True)
        found[str(path.relative_to(folder))] = hashlib.sha256(_bytes_of(weights)).hexdigest()
    return found


def _bytes_of(value: Any) -> bytes:
    if isinstance(value, torch.Tensor):
        return value.contiguous().numpy().tobytes()
    if isinstance(value, dict):
        return b"".join(str(key).encode() + _bytes_of(part) for key, part in sorted(value.items(), key=str))
    return repr(value).encode()


def below(process: int) -> list[int]:
    """Return the descendants of a process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):
            fields = path.read_text().rsplit(")", 1)[1].split()
            if int(fields[1]) == process:
                found += [int(path.parent.name), *below(int(path.parent.name))]
    return found


def kill_some(driver: int, drawn: random.Random) -> str:
    """Kill the driver alone, with all of its trials, or by SIGTERM; or one of its trials alone."""
    children = below(driver)
    how = drawn.choice(HOW)
    targets = {"driver": [driver], "all": [driver, *children], "trial": children[:1], "gently": [driver]}[how]
    for process in targets:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM if how == "gently" else signal.SIGKILL)
    return how


def disturbed(config: Path, output: Path, *, kills: int, seconds: float, drawn: random.Random) -> tuple[int, list[str]]:
    """Run the same command repeatedly, with `kills` random kills; return the last exit code and the kinds of kills."""
    done: list[str] = []
    pause = 2 * seconds / max(1, kills)
    while True:
        driver = fork(searching(config), output)
        while len(done) < kills:
            time.sleep(drawn.random() * pause)
            ended, status = os.waitpid(driver, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status), done
            done.append(kill_some(driver, drawn))
            if done[-1] != "trial":
                break
        code = os.waitstatus_to_exitcode(os.waitpid(driver, 0)[1])
        if code not in {-signal.SIGKILL, -signal.SIGTERM, 85}:
            return code, done


def campaign(folder: Path, *, trials: int, kills: int, seed: int, schedule: str) -> dict[str, Any]:
    """Search undisturbed and disturbed, and compare."""
    torch.set_num_threads(1)
    folder.mkdir(parents=True)
    make_data(folder, "plain")
    config = write_configs(folder, folder / "reference", trials=trials, schedule=schedule)
    warm = {"__parent__": str(folder / "train"), "save_dir": str(folder / "warm"), "max_update": 4, "plots": False}
    (folder / "warm.json").write_text(json.dumps(warm))
    in_child(
        learning_imports(lambda: door.main(["x-train", str(folder / "warm.json")]), folder / "modules"),
        folder / "warm.out",
    )
    import_what_was_needed(folder / "modules")
    with contextlib.suppress(ImportError):
        import_before_forking("optuna", "xdpx.reports.chart")
    overview.draw_overview = lambda *given, **named: b""
    began = time.monotonic()
    code = in_child(searching(config), folder / "reference.out")
    seconds = time.monotonic() - began
    if code:
        raise SystemExit((folder / "reference.out").read_text())
    expected = left_by(folder / "reference")
    config = write_configs(folder, folder / "disturbed", trials=trials, schedule=schedule)
    output = folder / "disturbed.out"
    drawn = random.Random(f"{seed}")
    code, done = disturbed(config, output, kills=kills, seconds=seconds, drawn=drawn)
    found = left_by(folder / "disturbed") if code == 0 else {}
    different = sorted(name for name in {*expected, *found} if expected.get(name) != found.get(name))
    return {
        "code": code, "different": different, "kills": {how: done.count(how) for how in sorted(set(done))},
        "compared": len(expected), "seconds": round(seconds), "trials": trials, "schedule": schedule,
        "output": str(output),
    }  # fmt: skip


if __name__ == "__main__":
    trials, kills, seed = map(int, sys.argv[2:5])
    HOW[:] = sys.argv[6:] or HOW
    told = campaign(Path(sys.argv[1]), trials=trials, kills=kills, seed=seed, schedule=sys.argv[5])
    sys.stdout.write(json.dumps(told) + "\n")
