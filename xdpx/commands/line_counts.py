"""Read the lines of text files, and count those of large ones in bounded memory: 16 bytes for each different line."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import IO

from xdpx.config.faults import ConfigError, Fault
from xdpx.utils import io


@contextmanager
def open_lines(name: str, path: str) -> Generator[IO[bytes]]:
    """Open a text file for reading lines, decompressed as x-prepro does.

    Raises:
        ConfigError: naming script `name`: there is no such file, or it is not text in an encoding whose lines end in
            the byte of a line feed.
    """
    from xdpx.datasets.guessing.encodings import no_text
    from xdpx.loaders.parsers.encodings import HEAD
    from xdpx.loaders.parsers.files import open_raw

    if not io.isfile(path):
        raise _refused(name, path, "is not a file.", "Correct the path.")
    with open_raw(path) as file:
        head = file.read(HEAD)
        file.seek(0)
        if known := no_text(head):
            raise _refused(name, path, f"is {known[0]}, not text.", known[1])
        if b"\0" in head:
            remedy = "Only text can be read by lines; convert UTF-16: iconv -f utf-16 -t utf-8 FILE."
            raise _refused(name, path, "holds NUL bytes: it is binary, or text in UTF-16.", remedy)
        yield file


def _refused(name: str, path: str, problem: str, remedy: str) -> ConfigError:
    return ConfigError(f"x-script {name}", [Fault(path, problem, remedy)])


def lines_of(name: str, path: str) -> Iterator[bytes]:
    """Yield the lines of a file without line ends. Raises ConfigError as `open_lines` does."""
    with open_lines(name, path) as file:
        for line in file:
            yield line.removesuffix(b"\n").removesuffix(b"\r")


def digest(line: bytes) -> bytes:
    """Return a digest of a line, 16 bytes."""
    return hashlib.blake2b(line, digest_size=16).digest()


def counts_of(name: str, path: str) -> Counter[bytes]:
    """Count the lines of a file by their digests."""
    return Counter(map(digest, lines_of(name, path)))
