"""Cut a text file into parts of whole rows, in order, so that they can be preprocessed as shards.

Usage: x-script cut_file FILE N FOLDER [FIRST] [--header]

  FILE      a text file, on any filesystem; .gz, .bz2 and .xz are decompressed, and their parts compressed likewise
  N         how many parts; they differ by one row at most
  FOLDER    where the parts go: train.txt becomes train_0.txt, train_1.txt, ...
  FIRST     number of the first part (0)
  --header  the first row names the columns: repeat it in every part

A row is a line. In a .csv it may continue on the next lines within quotes; such a row stays whole.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import IO

from xdpx.commands.line_counts import open_lines
from xdpx.commands.script_arguments import read_arguments
from xdpx.config.faults import ConfigError, Fault, first_few
from xdpx.logger import log
from xdpx.utils import io

NAME = "cut_file"
USAGE = "x-script cut_file FILE N FOLDER [FIRST] [--header]"


def main(argv: Sequence[str]) -> int:
    """Write the parts, and print their names."""
    given = read_arguments(NAME, argv, flags=("--header",))
    words, header = given.paths, bool(given.flags)
    if len(words) not in {3, 4}:
        raise _refuse("arguments", f"{len(words)} given, it takes 3 or 4.", f"Usage: {USAGE}")
    path, folder = words[0], words[2]
    count, first = _number("N", words[1], least=1), _number("FIRST", (words + ["0"])[3], least=0)
    if not io.isfile(path):
        raise _refuse("FILE", f"there is no file '{path}'.", "Correct the path.")
    with open_lines(NAME, path) as source:
        rows = sum(1 for _ in rows_of(source, path)) - header
    if rows < count:
        raise _refuse("N", f"is {count}, but '{path}' has {max(rows, 0)} rows.", f"Use at most {max(rows, 0)}.")
    if not header:
        _warn_of_header(path)
    for part, size in cut(path, count, folder, first=first, rows=rows, header=header):
        print(f"{part}\t{size}")
    return 0


def cut(path: str, count: int, folder: str, *, first: int, rows: int, header: bool = False) -> list[tuple[str, int]]:
    """Write the parts of a file, each atomically. Return their paths and numbers of rows.

    Args:
        path: the file.
        count: number of parts.
        folder: where they go.
        first: number of the first.
        rows: number of rows of the file, without a header.
        header: whether the first row is one; it is repeated in every part.
    """
    from xdpx.utils.compressed import compressed, compression_of
    from xdpx.utils.replacing import replacing

    packed = compression_of(path)
    stem, extension = os.path.splitext(io.name(path)[: len(io.name(path)) - len(packed)])
    edges = [rows * part // count for part in range(count + 1)]
    written, torn, gaps, before = [], list[str](), 0, b""
    with open_lines(NAME, path) as source:
        found = rows_of(source, path)
        top = next(found) if header else b""
        for part in range(count):
            target = io.join(folder, f"{stem}_{first + part}{extension}{packed}")
            size = edges[part + 1] - edges[part]
            with replacing(target, "wb") as file, compressed(file, target) as out:
                out.write(top)
                for place, row in enumerate(islice(found, size)):
                    out.write(row if row.endswith(b"\n") else row + b"\n")
                    torn += [target] if place == 0 and before.strip() and row.strip() else []
                    gaps += bool(before) and not before.strip() and bool(row.strip())
                    before = row
            written.append((target, size))
    if gaps and torn:
        log.warning(
            f"{path}: has blank lines between others ({gaps:,} times). Where these end a sentence or document, as in "
            f"CoNLL and text for pre-training, what begins within one is {first_few(torn, 3)}: let x-prepro divide the "
            "work instead (num_shards)"
        )
    return written


def rows_of(source: IO[bytes], path: str) -> Iterator[bytes]:
    """Yield the rows of a file with their line ends: lines, or in a .csv what lies between line ends beyond quotes.

    Raises:
        ConfigError: the quotes of a .csv are not closed, or break the rules.
    """
    if not _bare(path).endswith(".csv"):
        yield from source
        return
    from xdpx.loaders.parsers.files import MAX_LINE_BYTES

    csv.field_size_limit(MAX_LINE_BYTES)
    taken: list[bytes] = []
    reader = csv.reader(_taking(source, taken), delimiter=_delimiter(source), strict=True)
    try:
        for _ in reader:
            yield b"".join(taken)
            taken.clear()
    except csv.Error as error:
        line = reader.line_num - len(taken) + 1
        remedy = "Correct the quotes of this row, or name the file .txt to cut it by lines."
        raise _refuse(f"{path}:{line}", f"is not quoted csv ({error}).", remedy) from None


def _taking(source: IO[bytes], taken: list[bytes]) -> Iterator[str]:
    """Yield decoded lines, and append their bytes to `taken`; Latin-1 keeps the delimiters and quotes of any text."""
    for line in source:
        taken.append(line)
        yield line.decode("latin-1")


def _delimiter(source: IO[bytes]) -> str:
    top = source.readline()
    source.seek(0)
    return ";" if top.count(b";") > top.count(b",") else ","


def _bare(path: str) -> str:
    from xdpx.utils.compressed import compression_of

    return path.lower().removesuffix(compression_of(path))


def _warn_of_header(path: str) -> None:
    from xdpx.datasets.findings.raw_files import LABEL_NAMES, is_column_name
    from xdpx.tokenizers.target_map import folded

    with open_lines(NAME, path) as source:
        delimiter = _delimiter(source) if _bare(path).endswith(".csv") else "\t"
        top = source.readline().decode("utf-8-sig", "replace").rstrip("\r\n")
    cells = [folded(cell.strip("\"'")) for cell in top.split(delimiter)]
    if len(cells) > 1 and (all(map(is_column_name, cells)) or cells[-1] in LABEL_NAMES):
        log.warning(f"{path}: the first line looks like the names of columns; --header would repeat it in every part")


def _number(name: str, word: str, *, least: int) -> int:
    if not word.isdigit() or int(word) < least:
        raise _refuse(name, f"is '{word}'.", f"Use a whole number of at least {least}.")
    return int(word)


def _refuse(key: str, problem: str, remedy: str) -> ConfigError:
    return ConfigError(f"x-script {NAME}", [Fault(key, problem, remedy)])
