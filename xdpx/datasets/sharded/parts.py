"""Which part of a raw file a task takes: bytes of its own, every n-th block, or whole files."""

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
"""bytes: each task reads some lines of its own; blocks: each reads the file from the front, but works on every n-th
block alone, because where rows begin is not known otherwise (quotes, compression, arrays of JSON); file: one task takes
all of it."""

FIRST = Shard(0, 1)


@dataclass
class Trace:
    """What was seen while a part was read from the front: how many blocks, and a hash of where each began.

    Tasks that cut a file differently would lose rows, or take them twice: their traces differ.
    """

    blocks: int = 0
    digest: Any = field(default_factory=hashlib.sha256)

    def add(self, block: Block) -> None:
        """Note one block."""
        self.blocks += 1
        sizes = len(block.data), len(block.rows), len(block.bad)
        self.digest.update(f"{block.first_line} {sizes}\n".encode())

    def __str__(self) -> str:
        return f"{self.blocks} blocks {self.digest.hexdigest()}"


@dataclass(frozen=True)
class RawPart(RawFile):
    """The part of a raw file that one task takes; elsewhere it is used like the whole file.

    Attributes:
        mode: how the file is shared.
        shard: whose part it is.
        span: the bytes of the part, where the file is shared by bytes; None for a part of a file that is not.
        taken: whether this task takes the file, where one does.
        trace: filled while blocks are read.
    """

    mode: Mode = "file"
    shard: Shard = FIRST
    span: Span | None = None
    taken: bool = True
    trace: Trace = field(default_factory=Trace, compare=False)

    def blocks(self) -> Iterator[Block]:
        """Read the blocks of this part, in order."""
        if self.span is not None:
            yield from self.parser.blocks_of(self.path, self.span)
        elif self.taken:
            for number, block in enumerate(self.parser.blocks(self.path)):
                self.trace.add(block)
                if self.mode == "file" or number % self.shard.count == self.shard.index:
                    yield block

    def refuse(self, bad: Sequence[BadLine]) -> ConfigError:
        """Return the error that names the bad lines by their numbers in the file."""
        before = 0 if self.span is None else count_lines(self.path, Span(0, self.span.start))
        return super().refuse([BadLine(line + before, problem) for line, problem in bad])

    @property
    def size(self) -> int:
        """Number of lines of a part that is bytes; 0 for others."""
        return 0 if self.span is None else count_lines(self.path, self.span)

    def facts(self) -> dict[str, Any]:
        """Return what tells, beside those of the other parts, that together they are the file."""
        if self.span is not None:
            return {"mode": self.mode, "span": list(self.span), "lines": self.size}
        return {"mode": self.mode, "trace": str(self.trace)} if self.taken else {"mode": self.mode}


def parts_of(files: Mapping[str, RawFile], shard: Shard) -> dict[str, RawPart]:
    """Return the part of each raw file that a task takes, by split.

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
