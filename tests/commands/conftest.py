from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from xdpx import run as door

DRAW = "{\n  shape: square\n  side: 3\n  save_dir: out/one\n  batch_size: 32\n}\n"
LOOP = """{
  __parent__: [[{side: 3}, {side: 4}, {side: 5}]]
  shape: square
  save_dir: out/${side}
  batch_size: 32
}
"""

Write = Callable[..., Path]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with two configs, and a user's module that adds the command `x-draw`."""
    module = Path(__file__).parents[1] / "config" / "fake_rooms.py"
    (tmp_path / "modules").mkdir()
    shutil.copy(module, tmp_path / "modules" / "fake_rooms.py")
    (tmp_path / "draw.hjson").write_text(DRAW)
    (tmp_path / "loop.hjson").write_text(LOOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDPX_USER_MODULES", str(tmp_path / "modules"))
    return tmp_path


# ---- a tiny run as written by x-prepro and x-train, made by hand so that tests of x-eval and x-pred need neither

WORDS = ["[PAD]", "[UNK]", "good", "bad", "film", "very", "not", "plot"]
LABELS = ["neg", "pos"]
ROWS = [("good film", "pos"), ("bad plot", "neg"), ("very good plot very good", "pos"), ("not good", "neg")]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


class FinishedRun:
    """The folders `data` (preprocessed) and `run` (trained), and raw files, all below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data, self.run = root / "data", root / "run"
        self._write_data()
        self._write_run()

    def _write_data(self) -> None:
        write(self.data / "vocab.txt", "".join(f"{word}\n" for word in WORDS))
        write(self.data / "target_map.txt", "".join(f"{label}\n" for label in LABELS))
        values = {"data_source": str(self.root), "data_dir": str(self.data), "data_files": "*.txt", "workers": 1}
        values |= {"processor": "single", "loader": "single", "tokenizer": "space", "parser": "csv", "max_len": 8}
        write(self.data / "args.py", repr(values))
        write(self.root / "dev.txt", "".join(f"{text}\t{label}\n" for text, label in ROWS))
        write(self.root / "plain.txt", "".join(f"{text}\n" for text, _ in ROWS))

    def _write_run(self) -> None:
        import torch

        meta = {"processor": "single", "max_len": 8, "vocab_size": len(WORDS), "num_classes": 2, "pad_index": 0}
        values = {"data_dir": str(self.data), "save_dir": str(self.run), "max_epoch": 1, "batch_size": 2, **meta}
        values |= {"eval_interval": 5, "major_metric": "acc", "learning_rate": 0.1, "loss": "cross_entropy"}
        values |= {"model": "cls_cnn", "embedding_dim": 4, "hidden_size": 8, "encoder_layers": 1}
        self.values = values
        write(self.run / "args.py", repr(values))
        write(self.run / "valid.log.tsv", "epoch\tstep\tvalid_acc\tbest_score\n1\t5\t0.4\t0.4\n1\t10\t0.5\t0.5\n")
        for step in (5, 10):
            torch.save(self.build_model(step).state_dict(), self.run / f"checkpoint-{step}.pt")

    def build_model(self, seed: int):
        import torch

        from xdpx.config.loading import resolve

        run = resolve(self.values, "x-train", source="test", strict=False, paths=False)
        torch.manual_seed(seed)
        return run.build("model")

    def config(self, name: str = "config.hjson", **keys) -> str:
        write(self.root / name, json.dumps(keys, default=str, ensure_ascii=False))
        return str(self.root / name)

    def perform(self, command: str, **keys) -> None:
        """Check and run a command on the trained run, as `x-eval` and `x-pred` do."""
        from xdpx.commands import commands
        from xdpx.config.loading import load

        keys = keys if "config" in keys or "save_dir" in keys else {"save_dir": self.run, **keys}
        made = commands[command]
        run = load(self.config(**keys), command, inspect=lambda run: made(run).check())[0]
        made(run).run()


@pytest.fixture
def finished_run(tmp_path):
    return FinishedRun(tmp_path)


# ---- data to train on


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Preprocessed data of two classes."""
    folder = tmp_path_factory.mktemp("data")
    drawn = random.Random(0)
    (folder / "raw").mkdir()
    for name, count in (("train", 200), ("dev", 40)):
        labels = [drawn.randint(0, 1) for _ in range(count)]
        rows = [f"{' '.join(f'w{drawn.randint(20 * y, 30 + 20 * y)}' for _ in range(6))}\t{'ab'[y]}\n" for y in labels]
        (folder / "raw" / f"{name}.txt").write_text("".join(rows))
    config = {"data_source": f"{folder}/raw", "data_dir": f"{folder}/data", "processor": "single", "loader": "single"}
    (folder / "prepro.json").write_text(json.dumps({**config, "tokenizer": "space", "max_len": 16}))
    assert door.main(["x-prepro", str(folder / "prepro.json")]) == 0
    return folder / "data"
