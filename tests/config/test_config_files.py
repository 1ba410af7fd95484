from __future__ import annotations

import pytest

from xdpx.config.config_files import resolve_path

PATHS = [
    ("./b", "x/a.hjson", "x/b"),
    ("../b", "x/y/a.hjson", "x/b"),
    ("./b", "a.hjson", "b"),
    ("./b", "/abs/a.hjson", "/abs/b"),
    ("../b", "s3://bucket/x/a.hjson", "s3://bucket/b"),
    ("./b", "oss://bucket/a.hjson", "oss://bucket/b"),
    ("b", "x/a.hjson", "b"),
    (".b", "x/a.hjson", ".b"),
    ("/abs/b", "x/a.hjson", "/abs/b"),
    ("s3://bucket/b", "x/a.hjson", "s3://bucket/b"),
    ("./b", "command line", "b"),
]


@pytest.mark.parametrize(("path", "beside", "meant"), PATHS)
def test_only_dot_paths_are_relative_to_the_file_that_holds_them(path: str, beside: str, meant: str) -> None:
    assert resolve_path(path, beside=beside) == meant
