"""Split one raw table into train.tsv, dev.tsv and test.tsv: eight, one and one row in ten, text columns first.

Usage: python examples/split_rows.py TABLE OUTPUT_FOLDER COLUMN [COLUMN ...]

A column is a name from the header line (comma-separated, quoted tables) or a number from 0 (tab-separated tables
without a header); the label comes last. Rows with an empty cell are left out and counted. Which split a row
goes to depends on its text alone, so the same text never stands on both sides.
"""

from __future__ import annotations

import csv
import lzma
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

SPLITS = ("dev", "test", *["train"] * 8)


def cells(table: Path, columns: list[str]) -> Iterator[list[str]]:
    """Yield the chosen columns of each row, white space within a cell folded to single blanks."""
    opener = lzma.open if table.suffix == ".xz" else open
    with opener(table, "rt", encoding="utf-8-sig", newline="") as file:
        if all(column.isdigit() for column in columns):
            for line in file:
                row = line.rstrip("\r\n").split("\t")
                yield [" ".join(row[int(column)].split()) for column in columns]
        else:
            reader = csv.DictReader(file)
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                sys.exit(
                    f"{table}: no column {missing[0]!r}. The first line has: {', '.join(reader.fieldnames or ())}."
                )
            for named in reader:
                yield [" ".join((named[column] or "").split()) for column in columns]


def main() -> None:
    """Write the three files and say how many rows each holds."""
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    table, folder, columns = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    try:
        rows = list(cells(table, columns))
    except UnicodeDecodeError as error:
        sys.exit(f"{table}: is not UTF-8 ({error.reason}). Convert it, or use x-init, which recognises encodings.")
    folder.mkdir(parents=True, exist_ok=True)
    files = {split: (folder / f"{split}.tsv").open("w", encoding="utf-8") for split in ("train", "dev", "test")}
    counts = dict.fromkeys([*files, "left out"], 0)
    for row in rows:
        split = SPLITS[zlib.crc32(row[0].encode()) % len(SPLITS)] if all(row) else "left out"
        counts[split] += 1
        if split in files:
            files[split].write("\t".join(row) + "\n")
    for file in files.values():
        file.close()
    print(f"{folder}: " + ", ".join(f"{count} {name}" for name, count in counts.items()))


if __name__ == "__main__":
    main()
