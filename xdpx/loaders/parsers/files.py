"""Raw files: plain or compressed, at any path, cut into blocks of whole lines."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from xdpx.config.faults import ConfigError, Fault
from xdpx.loaders.parsers.base import BadLine, Block
from xdpx.loaders.parsers.encodings import UTF8, as_utf8
from xdpx.utils import io
from xdpx.utils.raw_places import is_lfs_pointer

BLOCK_BYTES = 1 << 20
MAX_LINE_BYTES = 16 << 20
"""A line that is longer is a bad line: it would need more memory than the rest of the work together."""

_BOM = b"\xef\xbb\xbf"
_OPENERS: dict[str, Callable[[IO[bytes]], Any]] = {
    ".gz": lambda file: gzip.GzipFile(fileobj=file),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
}


@contextmanager
def open_raw(path: str) -> Generator[IO[bytes]]:
    """Open a raw file for reading bytes, decompressing what ends in .gz, .bz2 or .xz.

    Raises:
        ConfigError: the compressed data are cut short or damaged, found while reading; or the file is a mere pointer.
    """
    suffix = path[path.rfind(".") :].lower()
    opener = _OPENERS.get(suffix)
    with io.open(path, "rb") as file:
        if is_lfs_pointer(file):
            fault = Fault("data_files", "is a pointer of Git LFS, not the file.", "Fetch it: git lfs pull.")
            raise ConfigError(path, [fault])
        file.seek(0)
        try:
            yield opener(file) if opener else file
        except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
            raise _damaged(path, suffix, error) from error
        except OSError as error:
            if suffix == ".bz2" and error.errno is None:  # bz2 has no error class of its own
                raise _damaged(path, suffix, error) from error
            raise


def _damaged(path: str, suffix: str, error: Exception) -> ConfigError:
    fault = Fault(
        "data_files", f"the {suffix} data are cut short or damaged ({error}).", "Fetch or make the file anew."
    )
    return ConfigError(path, [fault])


@contextmanager
def open_text(path: str, encoding: str) -> Generator[IO[bytes]]:
    """Open a raw file of text for reading bytes, decompressed and in UTF-8; see `as_utf8`."""
    with open_raw(path) as stream:
        yield as_utf8(stream, path, encoding)


def line_blocks(
    path: str, *, start_line: int = 0, block_bytes: int | None = None, encoding: str = UTF8
) -> Iterator[Block]:
    """Cut a text file into blocks of whole lines, about `block_bytes` each, in bounded memory.

    Lines end at line feeds alone, or at carriage returns where there is no line feed. A byte order mark at the very
    beginning is dropped.

    Args:
        path: the file, plain or compressed.
        start_line: how many lines to skip first.
        block_bytes: how much to read at a time, BLOCK_BYTES by default; does not change what is read.
        encoding: of the file; blocks are UTF-8.
    """
    with open_text(path, encoding) as stream:
        yield from skip_lines(_cut(_LineReader(stream, block_bytes or BLOCK_BYTES)), start_line)


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
    """Leave out the first lines of a file that is cut into blocks."""
    for block in blocks:
        drop = count - block.first_line + 1
        if drop <= 0:
            yield block
        elif rest := block.data.split(b"\n", drop)[drop:]:
            yield Block(block.first_line + drop, rest[0])


class _LineReader:
    """Whole lines from a stream, some at a time."""

    def __init__(self, stream: IO[bytes], block_bytes: int) -> None:
        self._stream = stream
        self._block_bytes = block_bytes
        self._rest = b""
        head = stream.read(3)
        self._rest = b"" if head == _BOM else head

    def whole_lines(self) -> Iterator[tuple[bytes, bool]]:
        """Yield (lines, False), each ending in a line feed but the last, or (b"", True) for a line too long."""
        while data := self._stream.read(self._block_bytes):
            end = data.rfind(b"\n") + 1
            if end:
                yield self._rest + data[:end], False
                self._rest = data[end:]
            else:
                self._rest += data
            if len(self._rest) > MAX_LINE_BYTES:
                self._rest = self._behind_this_line()
                yield b"", True
        if self._rest:
            yield self._rest, False

    def _behind_this_line(self) -> bytes:
        while data := self._stream.read(self._block_bytes):
            _, found, rest = data.partition(b"\n")
            if found:
                return rest
        return b""
