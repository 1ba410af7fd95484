"""Count the lines of large files in bounded memory: 16 bytes for each different line."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator

from xdpx.config.faults import ConfigError, Fault
from xdpx.utils import io


def lines_of(name: str, path: str) -> Iterator[bytes]:
    """Yield the lines of a file without line ends. Raises ConfigError, naming script `name`, if there is no file."""
    if not io.isfile(path):
        raise ConfigError(f"x-script {name}", [Fault(path, "is not a file.", "Correct the path.")])
    with io.open(path, "rb") as file:
        for line in file:
            yield line.removesuffix(b"\n").removesuffix(b"\r")


def digest(line: bytes) -> bytes:
    """Return a digest of a line, 16 bytes."""
    return hashlib.blake2b(line, digest_size=16).digest()


def counts_of(name: str, path: str) -> Counter[bytes]:
    """Count the lines of a file by their digests."""
    return Counter(map(digest, lines_of(name, path)))
