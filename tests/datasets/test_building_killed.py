"""A build that is killed at any time leaves the old or the new, and the same command finishes the work."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.tiers import nightly
from xdpx.datasets.store import Store
from xdpx.utils import commit

PROGRAM = "import sys; from xdpx.run import main; sys.exit(main(sys.argv[1:]))"
KILLS = 4 * int(os.environ.get("XDPX_KILLS", "1"))
"""SIGKILLs of one build. `make faults` takes more."""


def start(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, "x-prepro", str(folder / "prepro.hjson")]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def config(folder: Path, data_dir: str) -> None:
    values = {
        "data_source": str(folder / "raw"), "data_dir": str(folder / data_dir), "parser": "csv", "loader": "single",
        "tokenizer": "space", "processor": "single", "max_len": 8, "workers": 2,
    }  # fmt: skip
    (folder / "prepro.hjson").write_text(json.dumps(values))


def outputs(data_dir: Path) -> dict[str, str]:
    names = ["a.pt", "b.pt", "c.pt", "vocab.txt", "target_map.txt", "meta.hjson"]
    return {name: hashlib.sha256((data_dir / name).read_bytes()).hexdigest() for name in names}


def what_is_there_is_whole(data_dir: Path) -> None:
    if not (data_dir / "meta.hjson").exists():
        return
    for split, size in json.loads((data_dir / "meta.hjson").read_text())["data_size"].items():
        assert len(Store.open(str(data_dir / f"{split}.pt"))) == size
        assert not commit.problems(str(data_dir), split, hashes=True)


@nightly("tests/faults/test_sharded_kills.py::test_killed_tasks_are_done_again_and_nothing_else")
@pytest.mark.slow
def test_a_build_killed_again_and_again_ends_with_the_bytes_of_one_that_was_not(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    for split, label in (("a", "x"), ("b", "y"), ("c", "x")):
        lines = (f"word{number % 97} other{number % 31} {split}\t{label}\n" for number in range(60_000))
        (tmp_path / "raw" / f"{split}.txt").write_text("".join(lines))
    config(tmp_path, "whole")
    begun = time.monotonic()
    assert start(tmp_path).wait() == 0
    seconds = time.monotonic() - begun
    config(tmp_path, "killed")
    generator = random.Random(1)
    for _ in range(KILLS):
        process = start(tmp_path)
        time.sleep(generator.uniform(0.2, 1.0) * seconds)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        what_is_there_is_whole(tmp_path / "killed")
    process = start(tmp_path)
    _, errors = process.communicate()
    assert process.returncode == 0, errors
    assert outputs(tmp_path / "killed") == outputs(tmp_path / "whole")
    left = {path.name for path in (tmp_path / "killed").iterdir()}
    assert not {name for name in left if ".tmp-" in name or name in {".parts", ".lease"}}


@pytest.mark.slow
def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    program = (
        "import os, time, sys\n"
        "from xdpx.datasets import workers\n"
        "workers.available_cores = lambda: 2\n"
        "from tests_of_workers import wait\n"
        "if __name__ == '__main__':\n"
        "    with workers.Crew(wait, workers=2) as crew:\n"
        "        for pid in crew.map(range(100)):\n"
        "            print(pid, flush=True)\n"
    )
    (tmp_path / "main.py").write_text(program)
    (tmp_path / "tests_of_workers.py").write_text(
        "import os, time\ndef wait(n):\n    time.sleep(0.1)\n    return os.getpid()\n"
    )
    process = subprocess.Popen([sys.executable, "main.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pids = {int(process.stdout.readline()) for _ in range(4)}
    process.kill()
    process.communicate()
    end = time.monotonic() + 300
    while any(is_running(pid) for pid in pids) and time.monotonic() < end:
        time.sleep(0.05)
    assert not [pid for pid in pids if is_running(pid)]


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"
