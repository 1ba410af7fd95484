"""Read and write files that are compressed, by their ending: .gz, .bz2 and .xz."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import IO, Any

FORMATS: dict[str, Callable[[IO[bytes], Any], Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
"""Ending -> how to open such a file, given the open file with the compressed bytes and a mode."""


class DamagedError(OSError):
    """Compressed data that are cut short or not valid."""


def compression_of(path: str) -> str:
    """Return the ending of a compressed file, in lower case; '' for any other file."""
    ending = path[path.rfind(".") :].lower()
    return ending if ending in FORMATS else ""


@contextmanager
def decompressed(file: IO[bytes], path: str) -> Generator[IO[bytes]]:
    """Decompress an open file if it ends in .gz, .bz2 or .xz; any other is read as it is.

    Raises:
        DamagedError: while reading, the data are cut short or damaged.
    """
    ending = compression_of(path)
    if not ending:
        yield file
        return
    try:
        yield FORMATS[ending](file, "rb")
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise _damaged(path, ending, error) from error
    except OSError as error:
        if ending == ".bz2" and error.errno is None:  # bz2 has no error class of its own
            raise _damaged(path, ending, error) from error
        raise


def _damaged(path: str, ending: str, error: Exception) -> DamagedError:
    return DamagedError(f"{path}: the {ending} data are truncated or damaged ({error}).")


@contextmanager
def compressed(file: IO[bytes], path: str) -> Generator[IO[bytes]]:
    """Compress what is written into an open file if its path ends in .gz, .bz2 or .xz; else write it as it is."""
    ending = compression_of(path)
    if not ending:
        yield file
        return
    with FORMATS[ending](file, "wb") as out:
        yield out
