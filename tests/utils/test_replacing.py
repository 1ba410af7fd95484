from __future__ import annotations

import errno
from pathlib import Path

import pytest

from xdpx.utils.commit import replacing


def test_a_full_disk_is_told_with_the_name_of_the_file() -> None:
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"), replacing("/dev/full") as file:
        file.write("x" * 100_000)


def test_an_error_that_names_another_file_keeps_it(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="other"), replacing(tmp_path / "new"):
        raise OSError(errno.ENOSPC, "No space left on device", "other")
    assert list(tmp_path.iterdir()) == []
