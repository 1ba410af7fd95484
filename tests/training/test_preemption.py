import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator

import pytest

from xdpx.training import preemption as preemption_module
from xdpx.training.loop import Interrupted
from xdpx.training.preemption import SIGNALS, Preemption


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_is_noted_and_the_handlers_come_back(number: int) -> None:
    before = signal.getsignal(number)
    with Preemption() as preemption:
        os.kill(os.getpid(), number)
        assert preemption.received == signal.Signals(number).name
    assert signal.getsignal(number) is before


def test_a_second_request_ends_the_process_at_once_but_one_that_arrives_twice_is_one() -> None:
    code = """
import os, signal, time
from xdpx.training import preemption
preemption.SECONDS_OF_ONE_REQUEST = 0.2
with preemption.Preemption():
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)  # as Slurm does when it preempts the tasks of a step
    print("still here", flush=True)
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGTERM)
    print("never", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "still here\n")
    assert "Send it again to stop at once" in done.stderr


def test_a_signal_ends_a_long_wait_for_data_and_closes_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preemption_module, "GRACE_SECONDS", 0.1)
    closed, alarm = [], signal.getsignal(signal.SIGALRM)

    def shards() -> Generator[int]:
        try:
            yield 1
            time.sleep(30)  # a shard that does not arrive
            yield 2
        finally:
            closed.append(True)

    with Preemption() as preemption:
        items = preemption.watched(shards())
        assert next(items) == 1
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
        with pytest.raises(Interrupted, match="SIGTERM while waiting"):
            next(items)
    assert closed == [True]
    assert signal.getsignal(signal.SIGALRM) is alarm


def test_data_that_are_being_read_still_arrive_after_a_signal_and_callbacks_are_never_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preemption_module, "GRACE_SECONDS", 0.2)

    def shards() -> Generator[int]:
        os.kill(os.getpid(), signal.SIGTERM)
        yield 1
        yield 2

    with Preemption() as preemption:
        items = preemption.watched(shards())
        assert next(items) == 1
        time.sleep(0.3)  # an update, and what follows it
        with pytest.raises(Interrupted):
            next(items)


@pytest.mark.parametrize("name", ["", "alone", "goes_on"])
def test_a_signal_between_two_items_ends_them_unless_all_processes_stop_together_or_training_goes_on(name: str) -> None:
    with Preemption() as preemption:
        items = preemption.watched(number for number in range(3))
        assert next(items) == 0
        os.kill(os.getpid(), signal.SIGTERM)
        assert preemption.received == "SIGTERM"
        if name:
            setattr(preemption, name, name == "goes_on")
            assert next(items) == 1
        else:
            with pytest.raises(Interrupted):
                next(items)


def test_a_signal_is_not_taken_for_a_bad_row_that_the_data_leave_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preemption_module, "GRACE_SECONDS", 0.05)

    def rows() -> Generator[int]:
        for number in range(3):
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(5)
            except Exception:  # as loaders do that survive what they cannot parse
                continue
            yield number

    with Preemption() as preemption, pytest.raises(Interrupted):
        next(preemption.watched(rows()))
