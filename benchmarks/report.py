"""Rows of results, printed as a table and stored in benchmarks/RESULTS.md."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")
FAULTS = Path(__file__).with_name("FAULTS.md")


@dataclass(frozen=True)
class Row:
    """A promise, its measurement in this run, and whether the promise is kept."""

    what: str
    measured: str
    promised: str
    kept: bool

    def cells(self) -> list[str]:
        """Return the row as text cells."""
        return [self.what, self.measured, self.promised, "yes" if self.kept else "NO"]


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Return a median with the minimum and maximum as text: `4.31 (4.20 to 4.40)`."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return (
        f"{middle:.{digits}f}" if len(values) == 1 else f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"
    )


def markdown(sections: dict[str, list[Row]]) -> str:
    """Return the sections as a Markdown page; each states when and where it was measured."""
    lines = [
        "# Benchmarks",
        "",
        "Ratios measured side by side in one run of `make bench`; median (smallest to largest). Times of a shared",
        "machine say little by themselves, so only ratios and limits stand here.",
    ]
    for name, rows in sections.items():
        lines += ["", f"## {name}", "", stamp(), "", "| what | measured | promised | kept |", "|---|---|---|---|"]
        lines += ["| " + " | ".join(row.cells()) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def stamp() -> str:
    """Return the date, the machine, its load, and the versions of installed packages."""
    packages = []
    for name in ("torch", "transformers", "tokenizers", "datasets", "numpy", "jax", "flax", "optax"):
        with suppress(PackageNotFoundError):
            packages.append(f"{name} {version(name)}")
    python = f"Python {platform.python_version()}"
    return (
        f"{date.today().isoformat()} · {os.cpu_count()} cores, {platform.machine()}, load {os.getloadavg()[1]:.1f} · "
        f"{python} · {', '.join(packages)}"
    )


def sections_of(text: str) -> dict[str, str]:
    """Split a results page into its `##` sections, so that a partial run replaces only its own."""
    parts = text.split("\n## ")[1:]
    return {part.split("\n", 1)[0]: part.split("\n", 1)[1].strip() for part in parts}


def write_results(sections: dict[str, list[Row]], path: Path = RESULTS) -> None:
    """Write the page of results; sections that this run did not measure are kept."""
    page = markdown(sections)
    kept = sections_of(path.read_text(encoding="utf-8")) if path.exists() else {}
    for name, body in kept.items():
        if name not in sections:
            page += f"\n## {name}\n\n{body}\n"
    path.write_text(page, encoding="utf-8")
