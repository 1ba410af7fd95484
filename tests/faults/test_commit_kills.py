"""Every storage operation of a commit is the last one, once: what is found then is the old set or the new, whole."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tests.tiers import LONG, nightly, some
from xdpx.utils import io
from xdpx.utils.commit import Commit, problems, read_manifest, replacing, sweep

OLD = {"weights.pt": b"old weights", "state.pts": b"old state", "gone": b"only in the old set"}
NEW = {"weights.pt": b"NEW weights, longer than before", "state.pts": b"NEW state"}
MOMENTS = some([False, True], [False])
"""Whether a kill comes after an operation and not before it. After one is, but for writes, before the next."""
MOMENT = {False: "before it", True: "after it"}.get
STRIDE = 1 if LONG else 2
"""Distance between the operations that are the last one: from the first until one is struck that never comes."""


def commit(folder: str, name: str, files: dict[str, bytes]) -> None:
    with Commit(folder, name, facts={"which": "old" if files is OLD else "new"}) as new:
        for file_name, data in files.items():
            with new.open(file_name) as file:
                file.write(data[:5])
                file.write(data[5:])


def found(folder: str, name: str) -> str:
    """Tell which set is there, after proving that it is whole."""
    assert problems(folder, name, hashes=True) == []
    manifest = read_manifest(folder, name)
    assert manifest is not None
    files = OLD if manifest.facts["which"] == "old" else NEW
    for file_name, data in files.items():
        assert io.open(io.join(folder, file_name), "rb").read() == data
    return str(manifest.facts["which"])


@pytest.mark.parametrize("after", MOMENTS, ids=MOMENT)
def test_a_kill_at_any_operation_leaves_the_old_set_or_the_new(tools: Any, tmp_path: Path, after: bool) -> None:
    outcomes, code, at = [], 9, 1 - STRIDE
    while code == 9:
        at += STRIDE
        folder = str(tmp_path / str(at))
        commit(folder, "set", OLD)
        trouble = tools.Trouble(at, tools.die, after=after)

        def work(folder: str = folder, trouble: Any = trouble) -> None:
            tools.disturb_disk(trouble, pytest.MonkeyPatch())
            commit(folder, "set", NEW)

        code = tools.in_child(work)
        outcomes.append(found(folder, "set"))
        sweep(folder)
        assert not [name for name in io.listdir(folder) if ".tmp-" in name or name.endswith(".next")]
        commit(folder, "set", NEW)  # the same command again finishes
        assert found(folder, "set") == "new"
    assert code == 0
    assert at > 15  # operations were struck to the end, not none
    assert outcomes == sorted(outcomes, reverse=True)  # old, old, …, new, new: one moment decides
    assert set(outcomes) == {"old", "new"}


@nightly("test_a_kill_at_any_operation_leaves_the_old_set_or_the_new")
def test_a_kill_never_touches_an_older_set_of_another_name(tools: Any, tmp_path: Path) -> None:
    code, at = 9, 1 - STRIDE
    while code == 9:
        at += STRIDE
        folder = str(tmp_path / str(at))
        with Commit(folder, "step-1") as first, first.open("one.pt") as file:
            file.write(b"one")
        trouble = tools.Trouble(at, tools.die)

        def work(folder: str = folder, trouble: Any = trouble) -> None:
            tools.disturb_disk(trouble, pytest.MonkeyPatch())
            commit(folder, "step-2", NEW)

        code = tools.in_child(work)
        assert problems(folder, "step-1", hashes=True) == []
        assert problems(folder, "step-2", hashes=True) in ([], ["step-2: there is no manifest."])


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES])
def test_an_error_at_any_operation_is_raised_and_leaves_a_whole_set(tools: Any, tmp_path: Path, number: int) -> None:
    trouble = tools.Trouble(0, tools.raise_(number))
    while trouble.at <= len(trouble.seen):
        trouble = tools.Trouble(trouble.at + 1, tools.raise_(number))
        folder = str(tmp_path / str(trouble.at))
        commit(folder, "set", OLD)
        error = commit_in_trouble(tools, trouble, folder)
        assert found(folder, "set") == "new" or (error is not None and error.errno == number)
        assert not [name for name in io.listdir(folder) if ".tmp-" in name]
    assert trouble.at > 15


def commit_in_trouble(tools: Any, trouble: Any, folder: str) -> OSError | None:
    with pytest.MonkeyPatch.context() as patch:
        tools.disturb_disk(trouble, patch)
        try:
            commit(folder, "set", NEW)
        except OSError as error:
            return error
    return None


@pytest.mark.parametrize("after", MOMENTS, ids=MOMENT)
def test_a_kill_at_any_request_leaves_a_whole_set_on_an_object_store(tools: Any, s3_root: str, after: bool) -> None:
    outcomes, code, at = [], 9, 1 - STRIDE
    while code == 9:
        at += STRIDE
        folder = f"{s3_root}/{at}"
        commit(folder, "set", OLD)
        trouble = tools.Trouble(at, tools.die, after=after)

        def work(folder: str = folder, trouble: Any = trouble) -> None:
            tools.disturb_store(trouble, folder, pytest.MonkeyPatch())
            commit(folder, "set", NEW)

        code = tools.in_child(work)
        outcomes.append(found(folder, "set"))
        sweep(folder)
        assert not [name for name in io.listdir(folder) if ".tmp-" in name or name.endswith(".next")]
    assert code == 0
    assert at > 8
    assert outcomes == sorted(outcomes, reverse=True)
    assert set(outcomes) == {"old", "new"}


class Killed(BaseException):
    """Nothing is done after this, not even clearing up."""


def test_a_kill_at_any_request_leaves_a_whole_set_in_memory(tools: Any) -> None:
    outcomes, at, killed = [], 0, True
    while killed:
        at += 1
        folder = f"memory://kills-{os.getpid()}/{at}"
        commit(folder, "set", OLD)
        with pytest.MonkeyPatch.context() as patch:
            killed = commit_until(tools, at, folder, patch)
        outcomes.append(found(folder, "set"))
    assert outcomes == sorted(outcomes, reverse=True)
    assert set(outcomes) == {"old", "new"}


def commit_until(tools: Any, at: int, folder: str, patch: pytest.MonkeyPatch) -> bool:
    def strike() -> None:
        trouble.at += 1  # dead: the next request fails as well
        raise Killed

    trouble = tools.Trouble(at, strike)
    tools.disturb_store(trouble, folder, patch)
    try:
        commit(folder, "set", NEW)
    except Killed:
        return True
    return False


@pytest.mark.parametrize("after", MOMENTS, ids=MOMENT)
def test_a_kill_while_one_file_is_replaced_leaves_the_old_or_the_new(tools: Any, tmp_path: Path, after: bool) -> None:
    path, code, at = tmp_path / "file.txt", 9, 1 - STRIDE
    seen = set()
    while code == 9:
        at += STRIDE
        path.write_text("old")

        def work(at: int = at) -> None:
            tools.disturb_disk(tools.Trouble(at, tools.die, after=after), pytest.MonkeyPatch())
            with replacing(path) as file:
                file.write("the new text")

        code = tools.in_child(work)
        seen.add(path.read_text())
        sweep(tmp_path)
        assert os.listdir(tmp_path) == ["file.txt"]
    assert seen == {"old", "the new text"}
