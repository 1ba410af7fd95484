"""A job that is killed at any moment and started again sees what an undisturbed one sees."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xdpx.datasets.inputs import LanguageModelFeatures, NumpyFiles, SeqIOInput, Task

BATCHES = 400
CHILD = """
import json, os, sys
from pathlib import Path
from tests.datasets.inputs.test_killed import BATCHES, template
from xdpx.datasets.inputs import build_input

folder = Path(sys.argv[1])
saved = json.loads((folder / "saved.json").read_text()) if (folder / "saved.json").exists() else {"seen": []}
data = build_input(template(folder, pack=sys.argv[2] == "packed"))
if "state" in saved:
    data.set_state(saved["state"])
while len(saved["seen"]) < BATCHES:
    saved["seen"].append(int(data.get_next().labels.sum()))
    data.peek_padded()
    saved["state"] = data.get_state()
    (folder / "new.json").write_text(json.dumps(saved))
    os.replace(folder / "new.json", folder / "saved.json")
data.close()
"""


def template(folder: Path, *, pack: bool) -> Any:
    """Rows of tokens in a file, read ahead by a thread."""
    task = Task.HParams(name="rows", source=NumpyFiles.HParams(paths={"targets": str(folder / "rows.npy")}))
    converter = LanguageModelFeatures.HParams(with_inputs=False, pack=pack)
    options = {"task_feature_lengths": {"targets": 40}, "feature_converter": converter, "packing_window": 50}
    return SeqIOInput.HParams(mixture_or_task=task, batch_size=3, is_training=True, prefetch=4, **options)


def start(folder: Path, kind: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-c", CHILD, str(folder), kind], env=environment)


def seen(folder: Path) -> list[int]:
    saved = folder / "saved.json"
    return list(json.loads(saved.read_text())["seen"]) if saved.exists() else []


@pytest.mark.parametrize("kind", ["one per row", "packed"])
def test_a_job_that_is_killed_sees_every_batch_once(tmp_path: Path, kind: str) -> None:
    np.save(tmp_path / "rows.npy", np.random.default_rng(1).integers(1, 1000, (97, 13)))
    kills = 0
    for target in (random.Random(2).randrange(5, 150), random.Random(3).randrange(150, 350)):
        child = start(tmp_path, kind)
        while child.poll() is None and len(seen(tmp_path)) < target:
            time.sleep(0.005)
        kills += child.poll() is None
        child.kill()
        child.wait()
    assert start(tmp_path, kind).wait() == 0
    data = template(tmp_path, pack=kind == "packed").Instantiate()
    assert seen(tmp_path) == [int(data.get_next().labels.sum()) for _ in range(BATCHES)]
    assert kills
