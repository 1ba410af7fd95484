"""The same search on a real local Ray: the same decisions and weights, though its workers are killed."""

from __future__ import annotations

import importlib.util
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from xdpx.run import main

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A Ray of this machine, with two processors."""
    import ray

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
        yield
        ray.shutdown()


def results(folder: Path) -> list[dict[str, Any]]:
    """Return what the journal has of the results, in the order of their orders."""
    lines = [json.loads(line) for line in (folder / "search.jsonl").read_text().splitlines()]
    return sorted((line for line in lines if "result" in line), key=lambda line: int(line["result"]))


def kill_workers(count: int, killed: list[str], over: threading.Event) -> None:
    """Kill so many processes in which Ray trains a trial, one after another, each a moment after it has begun."""
    while len(killed) < count and not over.is_set():
        for process in psutil.process_iter(["cmdline"]):
            name = (process.info["cmdline"] or [""])[0]
            if name.startswith("ray::trial_") and process.info["cmdline"] and name not in killed:
                process.kill()
                killed.append(name)
                break
        time.sleep(0.05)


def test_a_search_on_ray_decides_and_trains_as_on_this_machine_though_workers_are_killed(
    search: Callable[..., list[str]], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    assert main(search(save_dir=str(tmp_path / "local"))) == 0
    request.getfixturevalue("cluster")  # afterwards: a process with Ray's threads should not be forked
    killed, over = list[str](), threading.Event()
    killer = threading.Thread(target=kill_workers, args=(2, killed, over))
    killer.start()
    try:
        assert main(search(save_dir=str(tmp_path / "ray"), executor="ray")) == 0
    finally:
        over.set()
        killer.join()
    assert len(killed) == 2
    assert results(tmp_path / "ray") == results(tmp_path / "local")
    assert weights(tmp_path / "ray") == weights(tmp_path / "local")


def weights(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every tensor of each trial's newest weights."""
    import torch

    found = {}
    for path in sorted(folder.glob("trial_*/checkpoint-*.pt")):
        for name, tensor in torch.load(path, weights_only=True).items():
            found[f"{path.relative_to(folder)}/{name}"] = tensor.numpy().tobytes()
    assert found
    return found


def test_an_address_at_which_nothing_listens_is_told_at_once(
    search: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with socket.socket() as taken:  # bound, but not listening
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{taken.getsockname()[1]}")
        assert main(search(executor="ray")) == 1
    assert "no Ray cluster answers at 127.0.0.1:" in capsys.readouterr().err
