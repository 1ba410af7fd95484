"""Cut a text file into parts of whole lines, in order, so that they can be preprocessed as shards.

Usage: x-script cut_file FILE N FOLDER [FIRST]

  FILE     a text file, on any filesystem
  N        how many parts; they differ by one line at most
  FOLDER   where the parts go: train.txt becomes train_0.txt, train_1.txt, ...
  FIRST    number of the first part (0)
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from xdpx.commands.script_arguments import read_arguments
from xdpx.config.faults import ConfigError, Fault
from xdpx.utils import io

NAME = "cut_file"
USAGE = "x-script cut_file FILE N FOLDER [FIRST]"


def main(argv: Sequence[str]) -> int:
    """Write the parts, and print their names."""
    words = read_arguments(NAME, argv).paths
    if len(words) not in {3, 4}:
        raise _refuse("arguments", f"{len(words)} given, it takes 3 or 4.", f"Usage: {USAGE}")
    path, folder = words[0], words[2]
    count, first = _number("N", words[1], least=1), _number("FIRST", (words + ["0"])[3], least=0)
    if not io.isfile(path):
        raise _refuse("FILE", f"there is no file '{path}'.", "Correct the path.")
    lines = io.lines(path)
    if lines < count:
        raise _refuse("N", f"is {count}, but '{path}' has {lines} lines.", f"Use at most {lines}.")
    for part, size in cut(path, count, folder, first=first, lines=lines):
        print(f"{part}\t{size}")
    return 0


def cut(path: str, count: int, folder: str, *, first: int, lines: int) -> list[tuple[str, int]]:
    """Write the parts of a file, each atomically. Return their paths and numbers of lines."""
    from xdpx.utils.replacing import replacing

    stem, extension = os.path.splitext(io.name(path))
    edges = [lines * part // count for part in range(count + 1)]
    written = []
    with io.open(path, "rb") as source:
        for part in range(count):
            target = io.join(folder, f"{stem}_{first + part}{extension}")
            size = edges[part + 1] - edges[part]
            with replacing(target, "wb") as out:
                for _ in range(size):
                    line = source.readline()
                    out.write(line if line.endswith(b"\n") else line + b"\n")
            written.append((target, size))
    return written


def _number(name: str, word: str, *, least: int) -> int:
    if not word.isdigit() or int(word) < least:
        raise _refuse(name, f"is '{word}'.", f"Use a whole number of at least {least}.")
    return int(word)


def _refuse(key: str, problem: str, remedy: str) -> ConfigError:
    return ConfigError(f"x-script {NAME}", [Fault(key, problem, remedy)])
