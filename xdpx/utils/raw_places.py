"""Recognise raw data that are not plain files: database tables, saved data sets of `datasets`, Git LFS pointers."""

from __future__ import annotations

from typing import IO

from xdpx.utils.io_utils import io

DATABASES = frozenset({"sqlite", "postgresql", "postgres", "mysql", "mariadb", "oracle", "mssql", "duckdb", "odps"})
SAVED = "state.json"
"""The file that marks a folder as saved by `datasets`; it lists the others."""

LFS = b"version https://git-lfs.github.com/spec/"


def is_lfs_pointer(file: IO[bytes]) -> bool:
    """Return whether an open file is a Git LFS pointer instead of the content. Reads its first bytes."""
    return file.read(len(LFS)) == LFS


def is_table(path: str) -> bool:
    """Return whether a path names a database table: `sqlite://`, `postgresql+psycopg://`, `odps://`, ..."""
    return path.partition("://")[0].partition("+")[0].lower() in DATABASES and "://" in path


def is_saved_dataset(path: str) -> bool:
    """Return whether a folder was written by `Dataset.save_to_disk`."""
    return not is_table(path) and io.isdir(path) and io.isfile(io.join(path, SAVED))


def is_raw(path: str) -> bool:
    """Return whether a path is raw data: an existing file or saved data set, or a table (existence not checked)."""
    return is_table(path) or io.isfile(path) or is_saved_dataset(path)
