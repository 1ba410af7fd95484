from __future__ import annotations

import errno
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from xdpx.utils.replacing import alone, replacing, write_text


def test_a_full_disk_is_told_with_the_name_of_the_file() -> None:
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"), replacing("/dev/full") as file:
        file.write("x" * 100_000)


def test_an_error_that_names_another_file_keeps_it(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="other"), replacing(tmp_path / "new"):
        raise OSError(errno.ENOSPC, "No space left on device", "other")
    assert list(tmp_path.iterdir()) == []


def test_of_several_that_read_and_replace_a_file_each_waits_for_the_others(tmp_path: Path) -> None:
    path = tmp_path / "scores.tsv"

    def add(number: int) -> None:
        for _ in range(5):
            with alone(path):
                write_text(path, path.read_text() + f"{number}\n")

    with ThreadPoolExecutor(4) as several:
        list(several.map(add, range(4)))
    assert sorted(path.read_text().split()) == sorted([*"0123"] * 5)
