import os
import signal
import subprocess
import sys

import pytest

from xdpx.trainer.preemption import SIGNALS, Preemption


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_is_noted_and_the_handlers_come_back(number: int) -> None:
    before = signal.getsignal(number)
    with Preemption() as preemption:
        os.kill(os.getpid(), number)
        assert preemption.received == signal.Signals(number).name
    assert signal.getsignal(number) is before


def test_the_second_signal_ends_the_process_at_once() -> None:
    code = """
import os, signal
from xdpx.trainer.preemption import Preemption
with Preemption():
    os.kill(os.getpid(), signal.SIGTERM)
    print("still here", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    print("never", flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "still here\n")
    assert "Send it again to stop at once" in done.stderr
