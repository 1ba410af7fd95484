"""The debugger stops where it is told, also in a worker process, and costs nothing to import."""

from __future__ import annotations

import os
import pty
import sys
import time
from pathlib import Path

import pytest

from xdpx.utils import pdb

IN_WORKERS = """
import multiprocessing, sys
sys.path.insert(0, {root!r})
from xdpx.utils import pdb

def work(number):
    secret = 40 + number
    pdb.set_trace()
    print("went on", number)

if __name__ == "__main__":
    pdb.set_nprocs(2)
    fork = multiprocessing.get_context("fork")
    runs = [fork.Process(target=work, args=(number,)) for number in (1, 2)]
    [run.start() for run in runs]
    [run.join() for run in runs]
    print("all done")
"""


def talk(program: Path, answers: list[str]) -> str:
    """Run a program on a terminal of its own, answer each prompt, and return all it said."""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, str(program)])
    said, end = "", time.monotonic() + 60
    while time.monotonic() < end:
        try:
            said += os.read(terminal, 4096).decode()
        except OSError:
            break
        if answers and "(Pdb) " in said:
            said = said.replace("(Pdb) ", "(asked) ")
            os.write(terminal, (answers.pop(0) + "\n").encode())
    os.waitpid(child, 0)
    return said


def test_workers_take_turns_at_the_terminal(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(IN_WORKERS.format(root=str(Path(__file__).parents[2])))
    said = talk(program, ["p secret", "n", "c", "p secret", "n", "c"])
    lines = [line.strip().removeprefix("(asked) ") for line in said.splitlines()]
    numbers = [line for line in lines if line in {"41", "42", "went on 1", "went on 2"}]
    assert numbers in (["41", "went on 1", "42", "went on 2"], ["42", "went on 2", "41", "went on 1"])
    assert "all done" in lines


def test_a_number_of_processes_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 process"):
        pdb.set_nprocs(0)
