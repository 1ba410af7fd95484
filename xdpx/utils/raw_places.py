"""Raw data that are no files: tables of a database, saved data sets of `datasets`, and mere pointers of Git LFS."""

from __future__ import annotations

from typing import IO

from xdpx.utils.io_utils import io

DATABASES = frozenset({"sqlite", "postgresql", "postgres", "mysql", "mariadb", "oracle", "mssql", "duckdb", "odps"})
SAVED = "state.json"
"""The file by which a folder tells that `datasets` saved it; it names the others."""

LFS = b"version https://git-lfs.github.com/spec/"


def is_lfs_pointer(file: IO[bytes]) -> bool:
    """Tell whether an open file is only a pointer of Git LFS to what was not fetched. Reads its first bytes."""
    return file.read(len(LFS)) == LFS


def is_table(path: str) -> bool:
    """Tell whether a path leads into a database: `sqlite://`, `postgresql+psycopg://`, `odps://`, ..."""
    return path.partition("://")[0].partition("+")[0].lower() in DATABASES and "://" in path


def is_saved_dataset(path: str) -> bool:
    """Tell whether a folder is a data set as `Dataset.save_to_disk` leaves it."""
    return not is_table(path) and io.isdir(path) and io.isfile(io.join(path, SAVED))


def is_raw(path: str) -> bool:
    """Tell whether raw data can be read at a path: a file, a table (not looked for), or a saved data set."""
    return is_table(path) or io.isfile(path) or is_saved_dataset(path)
