"""What may pass is tried again, in stated time; what will not pass is told at once; no message tells a secret."""

from __future__ import annotations

import errno
import os
import time
from typing import Any

import pytest

from xdpx.utils import io
from xdpx.utils.commit import Commit, Lease, problems, read_manifest
from xdpx.utils.redaction import keep_secret, redact
from xdpx.utils.retries import RetryPolicy, current_policy, is_transient, persistently

QUICK = RetryPolicy(first_delay=0.001, longest_delay=0.002, deadline=0.2)


def fails(times: int, error: Exception) -> Any:
    """Return something that fails so many times, then gives how often it was called."""
    calls = []

    def attempt() -> int:
        calls.append(1)
        if len(calls) <= times:
            raise error
        return len(calls)

    return attempt


@pytest.mark.parametrize("error", [ConnectionResetError(), TimeoutError(), OSError(errno.ETIMEDOUT, "slow")])
def test_what_may_pass_is_tried_again(error: Exception) -> None:
    assert persistently(fails(3, error), what="x", policy=QUICK) == 4


@pytest.mark.parametrize("error", [FileNotFoundError(), PermissionError(), ValueError(), OSError(errno.ENOSPC, "full")])
def test_what_will_not_pass_is_told_at_once(error: Exception) -> None:
    attempt = fails(1, error)
    with pytest.raises(type(error)):
        persistently(attempt, what="x", policy=QUICK)
    assert attempt() == 2


def test_giving_up_says_how_long_it_was_tried_and_why() -> None:
    start = time.monotonic()
    with pytest.raises(
        OSError, match=r"s3://b/x: gave up after \d+ tries in \d+ s. .* ConnectionResetError: gone"
    ) as caught:
        persistently(fails(10**9, ConnectionResetError("gone")), what="s3://b/x", policy=QUICK)
    assert isinstance(caught.value.__cause__, ConnectionResetError)
    assert time.monotonic() - start < 30


def test_waits_double_up_to_a_limit_and_differ() -> None:
    delays = RetryPolicy(first_delay=1.0, longest_delay=4.0).delays()
    waits = [next(delays) for _ in range(5)]
    for wait, whole in zip(waits, [1, 2, 4, 4, 4], strict=True):
        assert whole / 2 <= wait <= whole


def test_the_deadline_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDPX_RETRY_SECONDS", "0")
    assert current_policy().deadline == 0
    monkeypatch.setenv("XDPX_RETRY_SECONDS", "soon")
    with pytest.raises(ValueError, match="XDPX_RETRY_SECONDS is 'soon'"):
        current_policy()


class ClientError(Exception):
    """Looks like botocore's."""

    def __init__(self, status: int, code: str = "") -> None:
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}, "Error": {"Code": code}}


@pytest.mark.parametrize(("status", "transient"), [(500, True), (503, True), (429, True), (404, False), (403, False)])
def test_the_status_decides_however_deep_it_lies(status: int, transient: bool) -> None:
    wrapped = OSError(errno.EIO, "wrapped")
    wrapped.__cause__ = ClientError(status)
    assert is_transient(wrapped) == transient


def test_secrets_are_hidden() -> None:
    keep_secret("swordfish")
    shown = redact("oss://key:pa55@bucket/x?Signature=abc&y=1&x-amz-security-token=def swordfish")
    assert shown == "oss://***@bucket/x?Signature=***&y=1&x-amz-security-token=*** ***"
    assert redact("s3://bucket/a@b:c/d") == "s3://bucket/a@b:c/d"


# ---- a real object store over a bad line


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_everything_arrives_over_a_line_that_fails_every_fifth_time(bad_line: Any, seed: int, tmp_path: Any) -> None:
    root, line = bad_line
    line.rate = 0.2
    data = os.urandom(6 << 20)
    (tmp_path / "big").write_bytes(data)
    io.copy(tmp_path / "big", f"{root}/{seed}/big")
    assert io.open(f"{root}/{seed}/big", "rb").read() == data
    with Lease(f"{root}/{seed}"), Commit(f"{root}/{seed}", "set", facts={"seed": seed}) as new, new.open("a") as file:
        file.write(data[:1000])
    assert problems(f"{root}/{seed}", "set", hashes=True) == []
    manifest = read_manifest(f"{root}/{seed}", "set")
    assert manifest is not None
    assert manifest.facts == {"seed": seed}
    assert io.listdir(f"{root}/{seed}") == ["a", "big", "set.manifest.json"]
    assert {"500", "503", "reset before", "answer lost", "answer cut", ""} >= set(line.seen)
    assert len(set(line.seen)) > 2


def test_a_dead_line_is_given_up_with_one_clear_sentence(bad_line: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    root, line = bad_line
    line.rate = 1.0
    monkeypatch.setenv("XDPX_RETRY_SECONDS", "1")
    with pytest.raises(OSError, match=f"{root}/x: gave up after"):
        io.open(f"{root}/x")


def test_rejected_keys_are_told_at_once(s3_root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from s3fs import S3FileSystem

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    S3FileSystem.clear_instance_cache()
    with pytest.raises(PermissionError, match="no credentials for s3:// were found. Set AWS_ACCESS_KEY_ID"):
        io.open(f"{s3_root}/x")
    S3FileSystem.clear_instance_cache()
