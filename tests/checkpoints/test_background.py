from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from xdpx.checkpoints.background import VARIABLE, Background, asked_for, copied, wait_for_all


def test_work_is_done_meanwhile_and_one_after_the_other() -> None:
    background, gate, order = Background(), threading.Event(), []
    background.start(lambda: (gate.wait(30), order.append("first")))
    assert background.is_busy
    assert order == []
    gate.set()
    background.start(lambda: order.append("second"))
    background.wait()
    assert order == ["first", "second"]
    assert not background.is_busy


def fail() -> None:
    raise OSError("the disk is full")


@pytest.mark.parametrize("call", ["wait", "start"])
def test_an_error_is_logged_at_once_and_raised_at_the_next_call(call: str, capsys: pytest.CaptureFixture[str]) -> None:
    background = Background()
    background.start(fail)
    with pytest.raises(OSError, match="the disk is full"):
        background.wait() if call == "wait" else background.start(lambda: None)
    assert "could not be written: the disk is full" in capsys.readouterr().err
    background.wait()  # told once


def test_leaving_it_waits_and_raises() -> None:
    with pytest.raises(OSError, match="full"), Background() as background:
        background.start(fail)


def test_leaving_it_by_an_exception_waits_and_keeps_that_exception() -> None:
    done: list[int] = []

    def leave() -> None:
        with Background() as background:
            background.start(lambda: done.append(1))
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        leave()
    assert done == [1]


def test_it_is_given_to_those_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer in ("", "0", "False"):
        monkeypatch.setenv(VARIABLE, answer)
        assert asked_for() is None
    monkeypatch.setenv(VARIABLE, "1")
    background, done = asked_for(), []
    assert background is asked_for() is not None
    background.start(lambda: done.append(1))
    wait_for_all()
    assert done == [1]


def test_a_process_that_ends_lets_it_finish(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from xdpx.checkpoints.background import Background\n"
        "Background().start(lambda: (time.sleep(0.3), Path(sys.argv[1]).write_text('whole')))\n"
        "raise SystemExit(3)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "out")], check=False)
    assert done.returncode == 3
    assert (tmp_path / "out").read_text() == "whole"


def test_a_copy_does_not_follow_what_training_changes() -> None:
    weight = torch.zeros(4, 3)
    values = {"weight": weight, "turned": weight.t(), "nested": [(weight[0], 5)], "empty": torch.empty(0)}
    copy = copied(values)
    weight.fill_(7)
    assert copy["weight"].sum() == copy["turned"].sum() == copy["nested"][0][0].sum() == 0
    assert copy["turned"].shape == (3, 4)
    assert copy["nested"][0][1] == 5


def test_tied_weights_stay_tied_in_the_copy() -> None:
    weight = torch.nn.Parameter(torch.ones(4))
    copy = copied({"embedding": weight, "head": weight, "other": torch.ones(4)})
    assert copy["embedding"].data_ptr() == copy["head"].data_ptr()
    assert copy["embedding"].data_ptr() != copy["other"].data_ptr()
    assert not copy["head"].requires_grad


def test_what_is_being_written_is_not_overwritten_by_the_next_copy() -> None:
    background, gate, live = Background(), threading.Event(), torch.zeros(4)
    with background.copying():
        first = copied({"weight": live})
    written: list[list[float]] = []
    background.start(lambda: (gate.wait(30), written.append(first["weight"].tolist())))
    live.fill_(1)
    threading.Timer(0.05, gate.set).start()
    with background.copying():
        second = copied({"weight": live})
    assert written == [[0.0] * 4]
    assert second["weight"].data_ptr() == first["weight"].data_ptr()
    assert second["weight"].tolist() == [1.0] * 4
