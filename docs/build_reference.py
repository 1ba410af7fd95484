"""Write docs/reference.md from the declared parameters. MkDocs calls `on_pre_build`; it can also be run by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from xdpx.config import catalogue
from xdpx.config.declarations import Declaration, Entry
from xdpx.config.hints import shown

KINDS = (
    "command",
    "task",
    "model",
    "loss",
    "optimizer",
    "lr_scheduler",
    "processor",
    "loader",
    "parser",
    "tokenizer",
)
TITLES = {"loss": "Losses", "task": "Tasks"}
PAGE = Path(__file__).with_name("reference.md")


def on_pre_build(config: Any = None, **_: Any) -> None:
    """Write the page, unless it is current: rewriting it would make `mkdocs serve` build for ever."""
    text = page()
    if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
        PAGE.write_text(text, encoding="utf-8")


def page() -> str:
    """Write the whole page: every command and every registered name with its keys."""
    parts = [
        "# Reference",
        "Every key of every command and module, from the same declarations that check configs. "
        "`x-train --help KEY` says the same.",
    ]
    for kind in KINDS:
        parts.append(f"## {TITLES.get(kind, kind.replace('_', ' ').capitalize() + 's')}")
        parts += [section(entry) for entry in catalogue.entries(kind)]
    return "\n\n".join(parts) + "\n"


def section(entry: Entry) -> str:
    """Write one command or module: its meaning and a table of its keys."""
    lines = [f"### `{entry.name}`", "", entry.doc]
    if entry.parameters:
        lines += ["", "| key | type | default | meaning |", "|---|---|---|---|"]
        lines += [row(item) for item in entry.parameters]
    return "\n".join(lines)


def row(item: Declaration) -> str:
    """Write one key as a row of a Markdown table."""
    default = "required" if item.required else f"`{shown(item.default)}`"
    notes = [item.doc.rstrip("."), item.bounds()]
    if item.when:
        key, operator, value = item.when
        notes.append(f"only when `{key}` {operator} `{shown(value)}`")
    if item.relative:
        notes.append("relative numbers allowed")
    meaning = "; ".join(note for note in notes if note) + "."
    return "| " + " | ".join(text.replace("|", "\\|") for text in (f"`{item.key}`", item.type, default, meaning)) + " |"


if __name__ == "__main__":
    on_pre_build()
