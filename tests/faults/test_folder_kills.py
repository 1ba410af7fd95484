"""A checkpoint folder is saved while the process dies, or the disk fails, at every operation and at random moments."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.tiers import LONG, nightly, some
from xdpx.checkpoints.folders import FolderCommit, check, folder_name, newest, steps
from xdpx.checkpoints.publishing import discard
from xdpx.trainer.files.checkpoint_files import Contents, OwnState, save_checkpoint
from xdpx.trainer.files.model_files import ModelFiles, write_weights
from xdpx.trainer.files.rotation import rotate
from xdpx.utils import io

KILLS = (3 if LONG else 2) * int(os.environ.get("XDPX_KILLS", "1"))
"""Random SIGKILLs of a process that saves all the time. `make faults` takes more."""

MOMENTS = some([False, True], [False])
"""Whether a kill comes after an operation and not before it. After one is, but for writes, before the next."""
MOMENT = {False: "before it", True: "after it"}.get
STRIDE = 1 if LONG else 2
"""Distance between the operations that are the last one: from the first until one is struck that never comes."""


def save(parent: Path | str, step: int, text: str) -> None:
    with FolderCommit(parent, folder_name(step), facts={"step": step}) as staging:
        for name in ("model.safetensors", "optimizer.pt", "below/shard"):
            with staging.open(name, "w") as file:
                file.write(f"{name} {text}" * 50)


def content(parent: Path, step: int) -> str:
    """Tell what a folder holds, after proving that it is whole."""
    folder = parent / folder_name(step)
    assert check(folder) == []
    texts = {(folder / name).read_text().split(name)[1].strip() for name in ("model.safetensors", "below/shard")}
    assert len(texts) == 1
    return texts.pop()


def newest_step(parent: Path | str) -> int:
    path = newest(parent, resumable=False)
    assert path is not None
    return int(path.rpartition("-")[2])


@pytest.mark.parametrize("after", MOMENTS, ids=MOMENT)
def test_a_kill_at_any_operation_leaves_the_step_before_or_the_new_one(tools: Any, tmp_path: Path, after: bool) -> None:
    outcomes, code, at = [], 9, 1 - STRIDE
    while code == 9:
        at += STRIDE
        parent = tmp_path / str(at)
        save(parent, 10, "old")
        trouble = tools.Trouble(at, tools.die, after=after)

        def work(parent: Path = parent, trouble: Any = trouble) -> None:
            tools.disturb_disk(trouble, pytest.MonkeyPatch())
            save(parent, 20, "new")

        code = tools.in_child(work)
        outcomes.append(newest_step(parent))
        assert content(parent, outcomes[-1]) == ("old" if outcomes[-1] == 10 else "new")
        assert not [name for name in os.listdir(parent) if ".tmp-" in name]
        save(parent, 20, "new")  # the same again finishes
        assert content(parent, 20) == "new"
    assert code == 0
    assert at > 15  # operations were struck to the end, not none
    assert outcomes == sorted(outcomes)  # 10, 10, ..., 20, 20: one moment decides
    assert set(outcomes) == {10, 20}


@nightly("test_a_kill_at_any_operation_leaves_the_step_before_or_the_new_one")
@pytest.mark.parametrize("after", MOMENTS, ids=MOMENT)
def test_a_kill_while_a_step_is_saved_again_leaves_the_old_folder_or_the_new(
    tools: Any, tmp_path: Path, after: bool
) -> None:
    outcomes, code, at = [], 9, 1 - STRIDE
    while code == 9:
        at += STRIDE
        parent = tmp_path / str(at)
        save(parent, 10, "old")
        trouble = tools.Trouble(at, tools.die, after=after)

        def work(parent: Path = parent, trouble: Any = trouble) -> None:
            tools.disturb_disk(trouble, pytest.MonkeyPatch())
            save(parent, 10, "new")

        code = tools.in_child(work)
        assert newest_step(parent) == 10
        outcomes.append(content(parent, 10))
        assert os.listdir(parent) == ["checkpoint-10"]
    assert outcomes == sorted(outcomes, reverse=True)
    assert set(outcomes) == {"old", "new"}


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_an_error_at_any_operation_is_raised_and_leaves_a_whole_folder(tools: Any, tmp_path: Path, number: int) -> None:
    trouble = tools.Trouble(0, tools.raise_(number))
    while trouble.at <= len(trouble.seen):
        trouble = tools.Trouble(trouble.at + 1, tools.raise_(number))
        parent = tmp_path / str(trouble.at)
        save(parent, 10, "old")
        error = None
        with pytest.MonkeyPatch.context() as patch:
            tools.disturb_disk(trouble, patch)
            try:
                save(parent, 10, "new")
            except OSError as caught:
                error = caught
        assert newest_step(parent) == 10
        found = content(parent, 10)
        assert found == "new" or (error is not None and error.errno == number)
    assert trouble.at > 15


def test_a_kill_at_any_operation_of_deleting_never_leaves_half_a_checkpoint(tools: Any, tmp_path: Path) -> None:
    code, at = 9, 1 - STRIDE
    while code == 9:
        at += STRIDE
        parent = tmp_path / str(at)
        for step in (10, 20):
            save(parent, step, "old")
        trouble = tools.Trouble(at, tools.die)

        def work(parent: Path = parent, trouble: Any = trouble) -> None:
            tools.disturb_disk(trouble, pytest.MonkeyPatch())
            discard(str(parent / "checkpoint-10"))

        code = tools.in_child(work)
        assert newest_step(parent) == 20
        for step in steps(parent):
            assert content(parent, step) == "old"
    assert at > 4


class Killed(BaseException):
    """Nothing is done after this, not even clearing up."""


def save_until(tools: Any, at: int, parent: str, step: int, text: str) -> bool:
    """Save, and be killed at a request of the store; tells whether that was so."""

    def strike() -> None:
        trouble.at += 1  # dead: the next request fails as well
        raise Killed

    trouble = tools.Trouble(at, strike)
    with pytest.MonkeyPatch.context() as patch:
        tools.disturb_store(trouble, parent, patch)
        try:
            save(parent, step, text)
        except Killed:
            return True
    return False


@pytest.mark.parametrize("step", [10, 20])
def test_a_kill_at_any_request_of_an_object_store_leaves_a_whole_checkpoint(tools: Any, step: int) -> None:
    outcomes, at, killed = [], 0, True
    while killed:
        at += 1
        parent = f"memory://folder-kills-{os.getpid()}-{step}/{at}"
        save(parent, 10, "old")
        killed = save_until(tools, at, parent, step, "new")
        found = newest(parent, resumable=False)
        assert found is not None
        outcomes.append(io.store(found).read_bytes(io.join(found, "optimizer.pt")).decode().split()[1])
        assert check(found) == []
        save(parent, step, "new")
        assert newest_step(parent) == step
    assert outcomes == sorted(outcomes, reverse=True)
    assert len(outcomes) > 4


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small disk cannot be mounted here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize(("filler", "resumable"), [(1000, True), (1300, True), (1800, False)])
def test_on_a_full_disk_the_save_fails_by_name_and_the_step_before_stays(
    small_disk: Path, filler: int, resumable: bool
) -> None:
    model = torch.nn.Linear(100, 1000)  # 404 kB; with the optimizer's state, 1.2 MB
    optimizer = torch.optim.AdamW(model.parameters())
    small = Contents({"global_step": 5}, None, {"state": {}}, {})
    save_checkpoint(small_disk, 5, small, lambda folder: write_weights(folder, {"w": torch.ones(4)}))
    (small_disk / "filler").write_bytes(b"x" * filler * 1024)
    model(torch.ones(2, 100)).sum().backward()
    optimizer.step()
    whole = Contents({"global_step": 10}, None, *((optimizer.state_dict(), {}) if resumable else ()))
    with pytest.raises(OSError, match=r"checkpoint-10 could not be saved.*Free some space") as caught:
        save_checkpoint(small_disk, 10, whole, ModelFiles(model), own=OwnState.of_this_process())
    assert caught.value.errno == errno.ENOSPC
    assert newest(small_disk) == str(small_disk / "checkpoint-5")
    assert sorted(os.listdir(small_disk)) == ["checkpoint-5", "filler"]
    (small_disk / "filler").unlink()
    save_checkpoint(small_disk, 10, whole, ModelFiles(model), own=OwnState.of_this_process())
    assert newest(small_disk, resumable=resumable) == str(small_disk / "checkpoint-10")


WRITER = """
import sys
from pathlib import Path
sys.path[:0] = [sys.argv[2]]
from tests.faults.test_folder_kills import save
from xdpx.checkpoints.folders import recover, steps
from xdpx.trainer.files.rotation import rotate
parent = Path(sys.argv[1])
recover(parent)
step = max(steps(parent), default=0)
print("begun", flush=True)
while True:
    step += 1
    save(parent, step, str(step))
    rotate(parent, limit=2, current=step)
    print(step, flush=True)
    save(parent, step, str(step))  # a step may be saved twice
"""


@pytest.mark.timeout(120 + 10 * KILLS)
def test_killed_at_random_moments_of_saving_and_deleting_a_whole_checkpoint_is_there(tmp_path: Path) -> None:
    dice, reached = random.Random(0), 0
    for _ in range(KILLS):
        command = [sys.executable, "-c", WRITER, str(tmp_path), str(Path(__file__).parents[2])]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"begun\n"
        for _ in range(dice.randrange(2, 30)):  # steps, not seconds: on a busy machine a process may do none in a while
            assert int(writer.stdout.readline()) > reached
        time.sleep(dice.random() * 0.02)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        found = newest_step(tmp_path)
        assert found >= reached
        assert found == max(steps(tmp_path))
        assert all(content(tmp_path, step) == str(step) for step in steps(tmp_path))
        assert not [name for name in os.listdir(tmp_path) if ".tmp-" in name]
        reached = found
    assert reached > KILLS
    rotate(tmp_path, limit=1)
    assert steps(tmp_path) == [reached]
