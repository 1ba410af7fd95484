"""Run command lines of the Trainer's examples one after another in this process: `run_examples.py LINES.json`.

LINES.json is a list of word lists, each starting with the path of a script. Every line runs as `__main__`; its output
goes to `said-<number>.txt`, and its traceback to `failed-<number>.txt`.
"""

from __future__ import annotations

import contextlib
import json
import runpy
import sys
import traceback
from pathlib import Path


def run(number: int, words: list[str]) -> None:
    """Run a line as Python would: with its arguments, and its folder first in the search path."""
    script = Path(words[0])
    sys.argv, before = words, list(sys.path)
    sys.path.insert(0, str(script.parent))
    try:
        with open(f"said-{number}.txt", "w", encoding="utf-8") as said, contextlib.redirect_stdout(said):
            runpy.run_path(str(script), run_name="__main__")
    except (Exception, SystemExit):
        Path(f"failed-{number}.txt").write_text(traceback.format_exc(), encoding="utf-8")
    finally:
        sys.path[:] = before


def main() -> None:
    """Run all lines."""
    for number, words in enumerate(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))):
        run(number, words)


if __name__ == "__main__":
    main()
