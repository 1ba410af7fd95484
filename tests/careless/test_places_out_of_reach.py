"""An address that nobody listens at is told in one line and in seconds, whatever named it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from xdpx import run as door
from xdpx.utils import hub
from xdpx.utils.remote_filesystems import RemoteFiles
from xdpx.utils.retries import FIRST_CONTACT, causes, current_policy


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The address of a port that was free a moment ago."""
    monkeypatch.setenv("XDPX_RETRY_SECONDS", "0.3")
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def told_within(seconds: float, words: list[str]) -> int:
    """Run a command beside the test, so that one which never ends fails the test instead of the suite."""
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(door.main(words)), daemon=True)
    thread.start()
    thread.join(seconds)
    assert codes, "the command has not ended"
    return codes[0]


WHOLE = """{
  data_dir: .
  save_dir: out
  batch_size: 8
  max_epoch: 1
  processor: single
  eval_interval: -1
  major_metric: acc
  learning_rate: 0.1
  loss: cross_entropy
  model: bert_classification
"""


@pytest.mark.parametrize("key", ["__parent__", "pretrained_model"])
def test_an_http_address_nobody_listens_at_is_told_and_not_tried_for_ever(
    key: str, nobody: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.hjson").write_text(f"{WHOLE}  {key}: http://{nobody}/model.hjson\n}}\n")
    assert told_within(300, ["x-train", "a.hjson", "num_classes=2", "vocab_size=9", "max_len=9", "--dry"]) == 1
    told = capsys.readouterr().err
    assert f"http://{nobody}/model.hjson: gave up after" in told
    assert told.count("\n") == 1


@pytest.mark.usefixtures("forgotten_s3")
def test_an_s3_endpoint_nobody_listens_at_is_told(
    nobody: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"ACCESS_KEY_ID": "known", "SECRET_ACCESS_KEY": "hidden-word"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{nobody}")
    (tmp_path / "a.hjson").write_text('{__parent__: "s3://bucket-of-nobody/a.hjson", save_dir: "out"}')
    assert told_within(300, ["x-train", "a.hjson", "--dry"]) == 1
    assert "s3://bucket-of-nobody/a.hjson: gave up after" in capsys.readouterr().err


def test_google_is_not_asked_through_a_client_that_tries_for_half_a_minute(
    nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{nobody}")
    storage = RemoteFiles("gs", files=pytest.fail)
    monkeypatch.setattr("fsspec.get_filesystem_class", lambda scheme: None)  # as if its client were installed
    monkeypatch.setattr("fsspec.filesystem", lambda scheme, **options: pytest.fail("asked"))
    with pytest.raises(OSError, match=f"gs://bucket/a: gave up .* nothing answers at http://{nobody}"):
        storage.read_bytes("gs://bucket/a")


def test_a_place_that_never_answered_is_given_up_sooner_than_one_that_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDPX_RETRY_SECONDS")
    assert current_policy(answered=False).deadline == FIRST_CONTACT < current_policy().deadline
    monkeypatch.setenv("XDPX_RETRY_SECONDS", "40")  # the user's own word holds for both
    assert current_policy(answered=False).deadline == current_policy().deadline == 40


def test_a_server_that_takes_no_connection_in_time_does_not_answer(nobody: str) -> None:
    assert not hub.answers(f"http://{nobody}", 0.5)
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        assert hub.answers(f"http://127.0.0.1:{server.getsockname()[1]}", 5)


def chained(*errors: Exception) -> Iterator[Exception]:
    for error, cause in zip(errors, [*errors[1:], errors[0]], strict=True):
        error.__cause__ = cause
    yield from errors


@pytest.mark.parametrize("count", [1, 2, 3])
def test_errors_that_cause_each_other_are_each_told_once(count: int) -> None:
    errors = list(chained(*(ValueError(str(number)) for number in range(count))))
    assert list(causes(errors[0])) == errors
