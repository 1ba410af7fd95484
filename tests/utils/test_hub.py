from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from xdpx.checkpoints.aliases import with_files
from xdpx.utils import hub


def seen(source: str, here: bool) -> tuple[str, bool]:
    return source, here


def test_a_folder_is_read_without_asking_the_hub(tmp_path: Path) -> None:
    assert hub.load(str(tmp_path), seen) == (str(tmp_path), True)


def test_what_can_be_no_name_is_refused_without_asking_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "is_reachable", lambda: pytest.fail("asked"))
    for path in ("./nowhere", "/no/where", "a/b/c", "nowhere/", "s3://bucket/model"):
        with pytest.raises(FileNotFoundError, match="no such folder, and it is not a name"):
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


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the hub that holds one model, as the hub's own program leaves it."""
    folder = tmp_path / "models--google-bert--tiny-chinese"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs/main").write_text("abc")
    (folder / "snapshots/abc").mkdir(parents=True)
    (folder / "snapshots/abc/config.json").write_text("{}")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(hub, "answers", lambda address: pytest.fail("asked"))
    return folder / "snapshots/abc"


@pytest.mark.parametrize("name", ["google-bert/tiny-chinese", "tiny-chinese"])
def test_what_the_cache_of_this_machine_holds_is_found_without_asking_the_hub(cache: Path, name: str) -> None:
    assert hub.kept_folder(name) == str(cache)
    assert hub.load(name, seen) == (str(cache), True)
    assert with_files({"pretrained_model": name, "seed": 1}) == {"pretrained_model": str(cache), "seed": 1}


def test_what_it_lacks_or_holds_twice_under_a_short_name_is_not_found(cache: Path) -> None:
    assert hub.kept_folder("other/tiny-chinese") is None
    (cache.parents[2] / "models--somebody--tiny-chinese").mkdir()
    assert hub.kept_folder("tiny-chinese") is None


def test_a_name_is_answered_with_the_lines_that_fetch_it_and_a_path_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = hub.how_to_fetch("org/name")
    assert all(line in told for line in ("hf download org/name", "HF_ENDPOINT=https://", "modelscope download --model"))
    (tmp_path / "models").mkdir()
    assert not hub.how_to_fetch("models/bert")
    assert not hub.how_to_fetch("checkpoint-3.pt")
