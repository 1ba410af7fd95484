"""Open raw files, plain or compressed, at any path, and split them into blocks of whole lines."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from io import BufferedReader, RawIOBase
from typing import IO, Any

from xdpx.config.faults import ConfigError, Fault
from xdpx.loaders.parsers.base import BadLine, Block, Span
from xdpx.loaders.parsers.encodings import HEAD, UTF8, as_utf8
from xdpx.utils import io
from xdpx.utils.compressed import DamagedError, decompressed
from xdpx.utils.raw_places import is_lfs_pointer
from xdpx.utils.replacing import is_device

BLOCK_BYTES = 1 << 20
MAX_LINE_BYTES = 16 << 20
"""Maximum length of a line; a longer one is a bad line, since it would need more memory than everything else."""

_BOM = b"\xef\xbb\xbf"


@contextmanager
def open_raw(path: str, *, partly: bool = False) -> Generator[IO[bytes]]:
    """Open a raw file for reading bytes; files ending in .gz, .bz2 or .xz are decompressed.

    Args:
        path: the file.
        partly: whether only parts of it will be read, so that only these are fetched of a remote file.

    Raises:
        ConfigError: the file is a pipe or a device, or a Git LFS pointer; or, while reading, compressed data are cut
            short or damaged.
    """
    if io.islocal(path) and is_device(io.plain(path)):  # raw data are read several times
        fault = Fault("data_files", "is a pipe or a device, not a file.", "Write it to a file first: COMMAND > FILE.")
        raise ConfigError(path, [fault])
    with io.open_partly(path) if partly else io.open(path, "rb") as file:
        if is_lfs_pointer(file):
            fault = Fault("data_files", "is a pointer of Git LFS, not the file.", "Fetch it: git lfs pull.")
            raise ConfigError(path, [fault])
        file.seek(0)
        try:
            with decompressed(file, path) as stream:
                yield stream
        except DamagedError as error:
            problem = str(error).removeprefix(f"{path}: ")
            raise ConfigError(path, [Fault("data_files", problem, "Fetch or recreate the file.")]) from error


@contextmanager
def open_text(path: str, encoding: str, *, partly: bool = False) -> Generator[IO[bytes]]:
    """Open a raw text file for reading bytes, decompressed and converted to UTF-8; see `open_raw` and `as_utf8`."""
    with open_raw(path, partly=partly) as stream:
        yield as_utf8(stream, path, encoding)


def line_blocks(
    path: str,
    *,
    start_line: int = 0,
    block_bytes: int | None = None,
    encoding: str = UTF8,
    part: Span | None = None,
) -> Iterator[Block]:
    """Yield a text file in blocks of whole lines, about `block_bytes` each, in bounded memory.

    Lines end only at line feeds, or at carriage returns if there is no line feed. A byte order mark at the start is
    dropped.

    Args:
        path: the file, plain or compressed.
        start_line: number of lines to skip.
        block_bytes: number of bytes to read at a time, BLOCK_BYTES by default; does not change the lines.
        encoding: of the file; blocks are UTF-8.
        part: read only these lines, numbered from 1; for files that are neither compressed nor converted.
    """
    with open_text(path, encoding, partly=part is not None) as stream:
        lines = stream if part is None else window(stream, part)
        reader = _LineReader(lines, block_bytes or BLOCK_BYTES, marked=part is None or part.start == 0)
        yield from skip_lines(_cut(reader), start_line)


def _cut(reader: _LineReader) -> Iterator[Block]:
    line = 1
    for data, too_long in reader.whole_lines():
        if too_long:
            problem = f"is longer than {MAX_LINE_BYTES >> 20} MiB"
            yield Block(line, bad=(BadLine(line, problem),))
            line += 1
        else:
            yield Block(line, data)
            line += data.count(b"\n")


def skip_lines(blocks: Iterable[Block], count: int) -> Iterator[Block]:
    """Yield the blocks of a file without its first `count` lines."""
    for block in blocks:
        drop = count - block.first_line + 1
        if drop <= 0:
            yield block
        elif rest := block.data.split(b"\n", drop)[drop:]:
            yield Block(block.first_line + drop, rest[0])


def window(stream: IO[bytes], span: Span) -> IO[bytes]:
    """Return a stream of only the bytes of a span."""
    return BufferedReader(_Window(stream, span), HEAD)


class _Window(RawIOBase):
    def __init__(self, stream: IO[bytes], span: Span) -> None:
        stream.seek(span.start)
        self._stream = stream
        self._left = span.end - span.start

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)


class _LineReader:
    """Reads whole lines from a stream, in blocks. A byte order mark is dropped if `marked`."""

    def __init__(self, stream: IO[bytes], block_bytes: int, *, marked: bool) -> None:
        self._stream = stream
        self._block_bytes = block_bytes
        head = stream.read(3)
        self._head = b"" if marked and head == _BOM else head
        self._rest = b""

    def whole_lines(self) -> Iterator[tuple[bytes, bool]]:
        """Yield (lines, False), all but the last ending in a line feed, or (b"", True) for a line that is too long.

        Which lines are too long does not depend on the borders of blocks.
        """
        while data := self._read():
            first = data.find(b"\n")
            if len(self._rest) + (first if first >= 0 else len(data)) > MAX_LINE_BYTES:
                data = data[first + 1 :] if first >= 0 else self._behind_this_line()
                self._rest = b""
                yield b"", True
            end = data.rfind(b"\n") + 1
            if end:
                yield self._rest + data[:end], False
                self._rest = data[end:]
            else:
                self._rest += data
        if self._rest:
            yield self._rest, False

    def _read(self) -> bytes:
        head, self._head = self._head, b""
        return head + self._stream.read(self._block_bytes)

    def _behind_this_line(self) -> bytes:
        while data := self._stream.read(self._block_bytes):
            _, found, rest = data.partition(b"\n")
            if found:
                return rest
        return b""
