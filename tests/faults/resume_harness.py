"""Train small runs in forked children, kill them, and compare the results with an undisturbed run.

As a script: `python resume_harness.py <folder> <kills per run> <runs> <seed> <variant> ...`. Prints JSON lines. With 0
runs, there is one run for each (or every 40th) writing storage operation of a whole training, killed just before it.
Large modules are imported once, before forking, so that each child starts within milliseconds.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib
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

from tests.preloaded import SAVING, import_before_forking
from tests.processes import fork
from xdpx import run as door
from xdpx.runs import training
from xdpx.utils.local_files import LocalFiles

TIMES = {"ups", "wps", "train_wall"}
STORAGE_VERBS = ("open", "sync", "sync_folder", "rename", "unlink", "put", "create", "delete", "touch")
STRIDE = max(1, 40 // int(os.environ.get("XDPX_KILLS", "1")))
"""With 0 runs, a training is killed before every so many operations; 1 for each operation."""

ROOTS = {"torch", "xdpx", "sklearn", "transformers"}
"""Packages whose modules children would import."""

ABSENT = object()
TRAIN: dict[str, Any] = {
    "model": "cls_cnn", "loss": "cross_entropy", "embedding_dim": 8, "hidden_size": 8, "max_epoch": 3,
    "batch_size": 16, "learning_rate": 0.01, "lr_scheduler": "one_cycle", "warmup_steps": 0.1, "eval_interval": 7,
    "major_metric": "acc", "log_interval": 3, "resume": "auto", "save_interval": 5, "weight_decay": 0.01,
}  # fmt: skip
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "best and last": {"save_best_only": True, "save_last_only": True, "tolerance": 1000},
    "accumulated and averaged": {"update_freq": 3, "batch_size": 5, "ema_decay": 0.9, "save_full_checkpoint": True},
    "lazy": {"train_subset": "train*", "lazy_load": True, "max_epoch": 7, "batch_by_len": True, "update_freq": 2},
    "joined": {"train_subset": "train*", "max_epoch": 1, "save_interval": 4, "eval_interval": 10, "max_update": 30},
    "short": {"max_update": 12, "eval_interval": 4, "save_interval": 3, "save_best_only": True, "save_last_only": True},
    "by score": {
        "lr_scheduler": "reduce_lr_on_plateau", "warmup_steps": ABSENT, "patience": 0, "factor": 0.7, "threshold": 0.02,
    },
    "staged": {"train_steps": 19, "eval_interval": -1},
    "masked": {
        "model": "bert_lm", "loss": "masked_lm", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 16, "max_position_embeddings": 16, "hidden_dropout_prob": 0.1, "pretrained_model": None,
        "embedding_dim": ABSENT, "max_epoch": ABSENT, "max_update": 25, "ema_decay": 0.95, "update_freq": 2,
    },
}  # fmt: skip


def make_data(folder: Path, variant: str) -> None:
    """Write raw text of two classes, and preprocess it."""
    drawn = random.Random(0)
    raw = folder / "raw"
    raw.mkdir()
    for name, count in (("train", 200), ("train1", 120), ("train2", 90), ("dev", 60)):
        rows = []
        for _ in range(count):
            label = drawn.randint(0, 1)
            words = [f"w{drawn.randint(20 * label, 39 + 20 * label)}" for _ in range(drawn.randint(2, 12))]
            rows.append(f"{' '.join(words)}\t{'ab'[label]}\n")
        (raw / f"{name}.txt").write_text("".join(rows))
    config = {"data_source": str(raw), "data_dir": str(folder / "data"), "processor": "single", "loader": "single"}
    config |= {"tokenizer": "space", "max_len": 16}
    if variant == "masked":
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(60)), "a", "b"]
        (folder / "words.txt").write_text("".join(f"{word}\n" for word in words))
        config |= {"processor": "bert_lm", "loader": "corpus", "parser": "none", "tokenizer": "bert"}
        config |= {"vocab_file": str(folder / "words.txt"), "break_mode": "eos"}
    (folder / "prepro.json").write_text(json.dumps(config))
    if in_child(lambda: door.main(["x-prepro", str(folder / "prepro.json")]), folder / "prepro.out") != 0:
        raise SystemExit((folder / "prepro.out").read_text())


def write_config(folder: Path, variant: str, save_dir: Path) -> Path:
    values = {"__parent__": f"{folder}/data/meta", "data_dir": f"{folder}/data", "save_dir": str(save_dir)}
    path = save_dir.with_suffix(".json")
    wanted = {key: value for key, value in {**values, **TRAIN, **VARIANTS[variant]}.items() if value is not ABSENT}
    path.write_text(json.dumps(wanted))
    return path


def in_child(work: Callable[[], int], output: Path) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(fork(work, output), 0)[1])


def learning_imports(work: Callable[[], int], note: Path) -> Callable[[], int]:
    """Return `work` extended to record the modules that it imported, for `import_what_was_needed`."""

    def act() -> int:
        code = work()
        note.write_text("\n".join(name for name in sys.modules if name.split(".")[0] in ROOTS))
        return code

    return act


def import_what_was_needed(note: Path) -> None:
    """Import here what every child would import, so that no kills are wasted on the seconds of imports."""
    gc.disable()
    for name in note.read_text().split():
        with contextlib.suppress(Exception):  # some exist only in the process that created them
            importlib.import_module(name)
    gc.enable()
    import_before_forking("xdpx.runs.packed_ahead")


def killed_at_storage_operation(number: int, config: Path) -> Callable[[], int]:
    """Return a training that kills itself before its storage operation `number`."""

    def work() -> int:
        count = 0

        def counted(verb: str) -> Callable[..., Any]:
            original = getattr(LocalFiles, verb)

            def act(self: LocalFiles, *args: Any, **options: Any) -> Any:
                nonlocal count
                reads = verb == "open" and (args[1:] or ("rb",))[0].startswith("r")
                count += not reads
                if count == number and not reads:
                    os.kill(os.getpid(), signal.SIGKILL)
                return original(self, *args, **options)

            return act

        for verb in STORAGE_VERBS:
            setattr(LocalFiles, verb, counted(verb))
        code = door.main(["x-train", str(config)])
        sys.stdout.write(f"operations {count}\n")
        return code

    return work


def disturbed(config: Path, output: Path, *, kills: int, seconds: float, operations: int, drawn: random.Random) -> int:
    """Run the same command repeatedly, killing it up to `kills` times, and return the exit code of the last run."""
    for _ in range(kills):
        if drawn.random() < 0.5:
            code = in_child(killed_at_storage_operation(drawn.randint(1, operations), config), output)
            if code != -signal.SIGKILL:
                return code
            continue
        child = fork(lambda: door.main(["x-train", str(config)]), output)
        time.sleep(drawn.random() * seconds)
        os.kill(child, drawn.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code not in {-signal.SIGKILL, -signal.SIGTERM, 85}:
            return code
    return in_child(lambda: door.main(["x-train", str(config)]), output)


def table(path: Path) -> str:
    """Return a log without the columns that depend on the clock."""
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    kept = [index for index, column in enumerate(lines[0]) if column not in TIMES]
    return "\n".join("\t".join(line[index] for index in kept) for line in lines)


def left_by(folder: Path) -> dict[str, str]:
    """Return hashes of everything that must not depend on interruptions."""
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("checkpoint-*.pt"))
    }
    newest = max(folder.glob("checkpoint-*.pts"), key=lambda path: int(path.stem.split("-")[1]))
    state = torch.load(newest, weights_only=True)
    state["progress"]["train_seconds"] = 0.0
    parts = {"engine": state["engine"], "progress": state["progress"]}
    found["newest state"] = hashlib.sha256(text_of(parts).encode()).hexdigest()
    found |= {name: table(folder / name) for name in ("train.log.tsv", "valid.log.tsv")}
    found["status"] = json.loads((folder / "status.json").read_text())["status"]
    return found


def text_of(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return hashlib.sha256(value.numpy().tobytes()).hexdigest()
    if isinstance(value, dict):
        return json.dumps({str(key): text_of(part) for key, part in value.items()}, sort_keys=True)
    return f"[{', '.join(map(text_of, value))}]" if isinstance(value, list | tuple) else repr(value)


def campaign(folder: Path, variant: str, *, kills: int, runs: int, seed: int) -> None:
    torch.set_num_threads(1)
    training.draw_figures = lambda settings: None
    folder.mkdir()
    make_data(folder, variant)
    reference = folder / "reference"
    config = write_config(folder, variant, folder / "first")
    in_child(learning_imports(lambda: door.main(["x-train", str(config)]), folder / "modules"), folder / "first.out")
    import_what_was_needed(folder / "modules")
    config = write_config(folder, variant, reference)
    began = time.monotonic()
    code = in_child(killed_at_storage_operation(-1, config), folder / "reference.out")
    seconds = time.monotonic() - began
    text = (folder / "reference.out").read_text()
    if code != 0:
        raise SystemExit(text)
    operations = int(text.split("operations ")[-1].split()[0])
    expected = left_by(reference)
    for number in range(runs) if runs else range(0, operations, STRIDE):
        drawn = random.Random(f"{seed} {number}")
        save_dir = folder / f"run{number}"
        output = folder / f"run{number}.out"
        config = write_config(folder, variant, save_dir)
        if runs:
            code = disturbed(config, output, kills=kills, seconds=seconds, operations=operations, drawn=drawn)
        else:
            in_child(killed_at_storage_operation(number + 1, config), output)
            code = in_child(lambda config=config: door.main(["x-train", str(config)]), output)
        found = left_by(save_dir) if code == 0 else {}
        different = [name for name in {*expected, *found} if expected.get(name) != found.get(name)]
        told = {"variant": variant, "code": code, "different": sorted(different), "output": str(output)}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    kills, runs, seed = map(int, sys.argv[2:5])
    if "masked" in sys.argv[5:]:
        import_before_forking(*SAVING, "transformers.models.bert.modeling_bert")
    for variant in sys.argv[5:]:
        campaign(Path(sys.argv[1], variant), variant, kills=kills, runs=runs, seed=seed)
