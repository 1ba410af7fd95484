from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from xdpx.utils import hub


def seen(source: str, here: bool) -> tuple[str, bool]:
    return source, here


def test_a_folder_is_read_without_asking_the_hub(tmp_path: Path) -> None:
    assert hub.load(str(tmp_path), seen) == (str(tmp_path), True)


def test_what_can_be_no_name_is_refused_without_asking_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "is_reachable", lambda: pytest.fail("asked"))
    for path in ("./nowhere", "/no/where", "a/b/c", "nowhere/", "s3://bucket/model"):
        with pytest.raises(FileNotFoundError, match="no such folder, and it is no name"):
            hub.load(path, seen)


def test_a_hub_out_of_reach_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "answers", lambda address: False)
    with pytest.raises(FileNotFoundError, match="hub cannot be reached"):
        hub.load("owner/zork", seen)


def test_a_hub_that_answers_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        for variable in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(variable, f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        assert hub.load("owner/zork", seen) == ("owner/zork", False)


def test_a_place_that_does_not_answer_costs_little() -> None:
    began = time.monotonic()
    assert not hub.answers("https://192.0.2.1")  # kept for documentation, routed nowhere
    assert time.monotonic() - began < 30  # systems give up after two minutes
