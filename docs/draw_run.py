"""Draw docs/figures/x-run.svg and acc.png from a real run of `x-run`: `python docs/draw_run.py`; needs `rich`.

The rows are docstrings of Python's standard library, as in examples/demo. The picture shows what the command prints,
with the middle of the log left out and its long lines cut.
"""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path
from textwrap import wrap

from rich.console import Console
from rich.text import Text

DOCS = Path(__file__).parent
FIGURES = DOCS / "figures"
WRITER = DOCS.parent / "examples/demo/stdlib_docstrings.py"
FILE = "docstrings.csv"
WIDTH = 92
STYLES = (
    (r"^\$ .*", "bold"),
    (r"\((certain|likely)\)", "#7ee787"),
    (r"\((unsure|guessed|possible)\)", "yellow"),
    (r"\[[a-z_]+=[^\]]*\]", "#79c0ff"),
    (r"(?m)^  \w+ {2,}", "bold"),
    (r"<- best so far", "#7ee787"),
    (r"acc 0\.\d+ \([^)]*\)", "bold #7ee787"),
    (r"(?m)^\||\.\.\.|^  ⋮$", "#8b949e"),
)


def drawn(output: str) -> str:
    """Return the picture of a terminal that printed this, as SVG."""
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
    for line in shown_lines(output):
        hanging = " " * (12 if line.startswith("  ") else 2)
        text = Text("\n".join(wrap(line, WIDTH, subsequent_indent=hanging)))
        for pattern, style in STYLES:
            text.highlight_regex(pattern, style)
        console.print(text)
    svg = console.export_svg(title="XDPX")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace("Fira Code, monospace", "monospace")


def shown_lines(output: str) -> list[str]:
    """Return the command and what it printed, with most of the log left out and long lines of it cut in the middle."""
    lines = [f"$ x-run {FILE}", *output.splitlines()]
    begin = next(number for number, line in enumerate(lines) if line.startswith("|"))
    table = next(number for number, line in enumerate(lines) if line.startswith("| test, each class"))
    end = next(number for number, line in enumerate(lines) if number > table and not line.startswith("|"))
    steps = [f"{line[: WIDTH - 22]}... <- best so far" for line in lines[begin:table] if line.endswith("best so far")]
    matrix = next((number for number in range(table, end) if lines[number].startswith("| true \\")), end)
    told = ("| worst", "| page")
    classes = [*lines[table:matrix], "  ⋮", *[line for line in lines[matrix:end] if line.startswith(told)]]
    ending = [line for line in lines[end:] if "model=DIR" not in line]
    return [*lines[:begin], "  ⋮", *steps, "  ⋮", *classes, *ending]


def main() -> None:
    """Train in a temporary folder, and keep the picture of what was printed and the curve that was drawn."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, str(WRITER), "raw"], cwd=folder, check=True, capture_output=True)
        with (folder / FILE).open("w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["docstring", "topic"])
            for split in ("train", "dev", "test"):
                lines = (folder / f"raw/{split}.tsv").read_text(encoding="utf-8").splitlines()
                rows.writerows(line.split("\t") for line in lines)
        command = [sys.executable, "-m", "xdpx.run", "x-run", FILE]
        done = subprocess.run(
            command, cwd=folder, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        FIGURES.mkdir(exist_ok=True)
        (FIGURES / "x-run.svg").write_text(drawn(done.stdout), encoding="utf-8")
        shutil.copy(folder / "out/docstrings/run/plots/acc.png", FIGURES / "acc.png")


if __name__ == "__main__":
    main()
