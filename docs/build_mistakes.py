"""Write docs/mistakes.md: what is typed wrong, what is printed, the exit code. Every line is run.

Usage: python docs/build_mistakes.py

The mistakes are the rows of tests/promises/refusal_table.py. The test that runs those holds the page to them.
"""

from __future__ import annotations

import importlib.util
import io
import os
import shlex
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from xdpx.run import main

REPOSITORY = Path(__file__).parents[1]
sys.path.append(str(REPOSITORY))  # the tests import one another as `tests.…`
PAGE = Path(__file__).with_name("mistakes.md")
HEAD = """# Mistakes

What you type, what is printed, and the exit code: {count} mistakes, each run by `python docs/build_mistakes.py` on a
folder with sound configs (`prepro`, `train`, `eval`, `pred`, `viz`), data and a finished run, and again by the tests.
Nothing is touched by any of them, and none ends in a traceback. Exit code 2: what was asked for cannot be done as
written; 1: the disk, the network or a damaged file is in the way.
"""
SOUND = ("{", "}", "__parent__: ", "save_dir: new", "data_dir: new", "data_source: bad")
"""Beginnings of lines in the configs of the table that are not the mistake."""


def load(name: str) -> Any:
    """Return a module of the tests."""
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / f"tests/promises/{name}.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def typed(row: Any, table: Any) -> str:
    """Return the command of a row, and what its files hold that is wrong."""
    parts = [f"`{row.command or 'python xdpx/run.py'}`"]
    marks = {table.CUT: "is cut in half", table.FLIP: "has a flipped bit", table.GONE: "is removed"}
    for name, content in list(row.files.items())[:2]:
        if content in marks:
            parts.append(f"{name} {marks[content]}")
            continue
        text = content.decode("utf-8", "replace") if isinstance(content, bytes) else content
        lines = [line.strip() for line in text.splitlines() if not line.strip().startswith(SOUND)]
        shown = "; ".join(line for line in lines if line and line.isprintable())
        parts.append(f"{name}: {shown if len(shown) <= 90 else shown[:88] + ' …'}")
    return "<br>".join(part if part.startswith("`") else table.cell(part) for part in parts)


def printed(row: Any, pattern: Path, place: Path, refusals: Any) -> tuple[str, int]:
    """Run a row on a copy of the desk, and return what is printed and the exit code."""
    desk = place / "desk"
    shutil.copytree(pattern, desk)
    os.chdir(desk)
    refusals.put(desk, row.files)
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(shlex.split(row.command))
    os.chdir(place)
    shutil.rmtree(desk)
    return refusals.table.answer(out.getvalue(), err.getvalue(), str(desk)), code


def build() -> str:
    """Run every row, and return the page."""
    refusals = load("test_refusals")
    table = refusals.table
    with TemporaryDirectory() as folder:
        place, pattern = Path(folder).resolve(), Path(folder).resolve() / "pattern"
        refusals.put(pattern, table.DESK)
        os.chdir(pattern)
        with redirect_stderr(io.StringIO()):
            if main(["x-prepro", "prepro", "x-train", "train"]) != 0:
                raise RuntimeError("the sound configs of the table do not run")
        (pattern / "run/snapshot.zip").unlink()
        parts = [HEAD.format(count=len(table.TABLE))]
        for title, rows in table.GROUPS.items():
            parts.append(f"## {title}\n\n| mistake | typed | printed | exit |\n|---|---|---|---|")
            for row in rows:
                text, code = printed(row, pattern, place, refusals)
                parts[-1] += f"\n| {row.what} | {typed(row, table)} | {table.cell(text)} | {code} |"
        os.chdir(REPOSITORY)
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.stderr.write("running every mistake once\n")
    PAGE.write_text(build(), encoding="utf-8")
