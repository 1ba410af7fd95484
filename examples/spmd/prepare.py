"""Write a text to learn from: two files of plain characters, the first nine tenths to train on, the rest to evaluate.

Usage: python prepare.py FOLDER [TEXT_FILE]

Without a file it takes the manual that comes with Python (`pydoc_data`, half a million characters of English).
With one, e.g. tinyshakespeare, it takes that.
"""

from __future__ import annotations

import pydoc_data.topics
import sys
from pathlib import Path

TRAINED_ON = 0.9


def manual() -> str:
    """Return Python's own manual, topic by topic."""
    return "\n\n".join(text for _, text in sorted(pydoc_data.topics.topics.items()))


def main(folder: str, source: str | None = None) -> None:
    """Write train.txt and valid.txt."""
    text = manual() if source is None else Path(source).read_text(encoding="utf-8")
    plain = text.encode("ascii", "replace").decode()
    cut = int(len(plain) * TRAINED_ON)
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    (target / "train.txt").write_text(plain[:cut], encoding="ascii")
    (target / "valid.txt").write_text(plain[cut:], encoding="ascii")
    print(f"{folder}: {cut:,} characters to train on, {len(plain) - cut:,} to evaluate; {len(set(plain))} different")


if __name__ == "__main__":
    main(*sys.argv[1:3])
