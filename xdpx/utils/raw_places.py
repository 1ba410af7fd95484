"""Raw data that are no files: tables of a database, and the folders in which Hugging Face `datasets` saves."""

from __future__ import annotations

from xdpx.utils.io_utils import io

DATABASES = frozenset({"sqlite", "postgresql", "postgres", "mysql", "mariadb", "oracle", "mssql", "duckdb", "odps"})
SAVED = "state.json"
"""The file by which a folder tells that `datasets` saved it; it names the others."""


def is_table(path: str) -> bool:
    """Tell whether a path leads into a database: `sqlite://`, `postgresql+psycopg://`, `odps://`, ..."""
    return path.partition("://")[0].partition("+")[0].lower() in DATABASES and "://" in path


def is_saved_dataset(path: str) -> bool:
    """Tell whether a folder is a data set as `Dataset.save_to_disk` leaves it."""
    return not is_table(path) and io.isdir(path) and io.isfile(io.join(path, SAVED))


def is_raw(path: str) -> bool:
    """Tell whether raw data can be read at a path: a file, a table (not looked for), or a saved data set."""
    return is_table(path) or io.isfile(path) or is_saved_dataset(path)
