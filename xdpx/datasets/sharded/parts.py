"""The part of each raw file that a task processes: a range of bytes, every n-th block, or the whole file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from xdpx.config.faults import ConfigError
from xdpx.datasets.raw_data import RawFile
from xdpx.datasets.sharded.parameters import Shard
from xdpx.loaders.parsers.base import BadLine, Block, Span
from xdpx.loaders.parsers.spans import count_lines
from xdpx.utils import io
from xdpx.utils.raw_places import is_table

Mode = Literal["bytes", "blocks", "file"]
"""How a raw file is split. bytes: each task reads a range of bytes; blocks: each task reads the whole file, but
processes only every n-th block, as the starts of rows are not known otherwise (quotes, compression, arrays of JSON);
file: one task processes all of it."""

FIRST = Shard(0, 1)


@dataclass
class Trace:
    """Number of blocks of a file that was read from the start, and a hash of the first line and the size of each.

    Tasks that split a file differently would lose rows, or take them twice: their traces differ.
    """

    blocks: int = 0
    digest: Any = field(default_factory=hashlib.sha256)

    def add(self, block: Block) -> None:
        """Add one block."""
        self.blocks += 1
        sizes = len(block.data), len(block.rows), len(block.bad)
        self.digest.update(f"{block.first_line} {sizes}\n".encode())

    def __str__(self) -> str:
        return f"{self.blocks} blocks {self.digest.hexdigest()}"


@dataclass(frozen=True)
class RawPart(RawFile):
    """The part of a raw file that one task processes; can be used like the whole file.

    Attributes:
        mode: how the file is split.
        shard: the task.
        span: byte range of the part in mode `bytes`; None in other modes.
        taken: whether this task processes the file; False only in mode `file`.
        trace: updated while blocks are read.
    """

    mode: Mode = "file"
    shard: Shard = FIRST
    span: Span | None = None
    taken: bool = True
    trace: Trace = field(default_factory=Trace, compare=False)

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks of this part, in order."""
        if self.span is not None:
            yield from self.parser.blocks_of(self.path, self.span)
        elif self.taken:
            for number, block in enumerate(self.parser.blocks(self.path)):
                self.trace.add(block)
                if self.mode == "file" or number % self.shard.count == self.shard.index:
                    yield block

    def refuse(self, bad: Sequence[BadLine]) -> ConfigError:
        """Return the error that lists the bad lines, numbered from the start of the file."""
        before = 0 if self.span is None else count_lines(self.path, Span(0, self.span.start))
        return super().refuse([BadLine(line + before, problem) for line, problem in bad])

    @property
    def size(self) -> int:
        """Number of lines of the part in mode `bytes`; 0 in other modes."""
        return 0 if self.span is None else count_lines(self.path, self.span)

    def facts(self) -> dict[str, Any]:
        """Return the facts by which gathering checks that the parts of all tasks make up the file."""
        if self.span is not None:
            return {"mode": self.mode, "span": list(self.span), "lines": self.size}
        return {"mode": self.mode, "trace": str(self.trace)} if self.taken else {"mode": self.mode}


def parts_of(files: Mapping[str, RawFile], shard: Shard) -> dict[str, RawPart]:
    """Return the part of each raw file that a task processes, by split.

    Args:
        files: raw files by split.
        shard: the task.
    """
    spans = {split: file.parser.span(file.path, shard.index, shard.count) for split, file in files.items()}
    uncut = [split for split, span in spans.items() if span is None]
    one_each = [split for split in uncut if is_table(files[split].path) or len(uncut) >= shard.count]
    one_each.sort(key=lambda split: (-_weight(files[split]), split))
    parts = {}
    for split, file in files.items():
        known = RawPart(file.path, file.parser, file.labelled, file.identity, shard=shard)
        if spans[split] is not None:
            parts[split] = replace(known, mode="bytes", span=spans[split])
        elif split in one_each:
            parts[split] = replace(known, taken=one_each.index(split) % shard.count == shard.index)
        else:
            parts[split] = replace(known, mode="blocks")
    return parts


def _weight(file: RawFile) -> int:
    return 0 if is_table(file.path) else io.size(file.path)
