"""Tasks of a sharded x-prepro that are killed at any time: run again, they end with the bytes of one process."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from xdpx.commands.prepro import Prepro
from xdpx.config.loading import resolve

COUNT = 4
KILLS = 8 * int(os.environ.get("XDPX_KILLS", "1"))
"""Tasks that are killed. `make faults` takes more."""


def prepro(folder: Path, **values: Any) -> None:
    known = {
        "data_source": str(folder / "raw"), "data_dir": str(folder / "data"), "parser": "csv", "loader": "single",
        "tokenizer": "space", "processor": "single", "max_len": 8, "remove_duplicate": True, **values,
    }  # fmt: skip
    Prepro(resolve(known, "x-prepro", source="test")).run()


def forked(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    finally:
        os._exit(code)


def outputs(data_dir: Path) -> dict[str, str]:
    names = ["train.pt", "dev.pt", "vocab.txt", "target_map.txt", "meta.hjson", "args.py", "findings.json"]
    return {name: hashlib.sha256((data_dir / name).read_bytes()).hexdigest() for name in names}


def test_killed_tasks_are_done_again_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    for split in ("train", "dev"):
        lines = (f"word{number % 97} {split} {number % 3000}\t{number % 3}\n" for number in range(4000))
        (tmp_path / "raw" / f"{split}.txt").write_text("".join(lines))
    begun = time.monotonic()
    prepro(tmp_path)
    seconds = time.monotonic() - begun
    whole = outputs(tmp_path / "data")
    (tmp_path / "data").rename(tmp_path / "whole")
    draw = random.Random(1)
    for _ in range(KILLS // 2):
        tasks = [forked(lambda index=index: prepro(tmp_path, num_shards=COUNT, shard_index=index)) for index in (0, 1)]
        time.sleep(draw.uniform(0.0, 1.2) * seconds)
        for pid in tasks:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    for index in range(COUNT):
        prepro(tmp_path, num_shards=COUNT, shard_index=index)
    assert outputs(tmp_path / "data") == whole
    left = [path.name for path in (tmp_path / "data.shards").iterdir()]
    assert not {"made", "counts"} & set(left)
