"""Write docs/reference.md and docs/trainer_reference.md from what is declared. MkDocs calls `on_pre_build`."""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

from xdpx.config import catalogue
from xdpx.config.declarations import Declaration, Entry
from xdpx.config.hints import shown
from xdpx.config.registry import registry_of

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
    "dataset",
    "sampler",
    "callback",
)
TITLES = {"loss": "Losses", "task": "Tasks"}
PAGE = Path(__file__).with_name("reference.md")
FAMILIES = Path(__file__).parents[1] / "examples/families"
SOURCE = re.compile(r"^Sources?\b[^:\n]*:(?:.+\n?)+", re.MULTILINE)
"""The paragraph of a docstring that names the paper."""
TRAINER_PAGE = Path(__file__).with_name("trainer_reference.md")
TRAINER_CLASSES = (
    "Trainer",
    "Seq2SeqTrainer",
    "TrainingArguments",
    "Seq2SeqTrainingArguments",
    "HfArgumentParser",
    "TrainerCallback",
    "TrainerState",
    "TrainerControl",
    "DefaultFlowCallback",
    "EarlyStoppingCallback",
    "PrinterCallback",
    "ProgressCallback",
)


def on_pre_build(config: Any = None, **_: Any) -> None:
    """Write the pages, unless they are current: rewriting them would make `mkdocs serve` build for ever."""
    for target, text in ((PAGE, page()), (TRAINER_PAGE, trainer_page())):
        if not target.exists() or target.read_text(encoding="utf-8") != text:
            target.write_text(text, encoding="utf-8")


def page() -> str:
    """Write the whole page: every command and every registered name with its keys."""
    parts = [
        "# Reference",
        "Every key of every command and module, from the same declarations that check configs. "
        "`x-train --help KEY` says the same.",
    ]
    for kind in KINDS:
        parts.append(f"## {TITLES.get(kind, kind.replace('_', ' ').capitalize() + 's')}")
        shipped = registry_of(kind).shipped
        entries = [entry for entry in catalogue.entries(kind) if entry.name in shipped]
        parts += [overview(entries), *(section(entry) for entry in entries)]
    return "\n\n".join(parts) + "\n"


def section(entry: Entry) -> str:
    """Write one command or module: its meaning and a table of its keys."""
    lines = [f"### `{entry.name}`", "", entry.doc]
    lines += [line for paragraph in (paper(entry), example(entry)) if paragraph for line in ("", paragraph)]
    if entry.parameters:
        lines += ["", "| key | type | default | meaning |", "|---|---|---|---|"]
        lines += [row(item) for item in entry.parameters]
    return "\n".join(lines)


def overview(entries: list[Entry]) -> str:
    """Write one line for each name of a kind."""
    lines = ["| name | meaning |", "|---|---|"]
    return "\n".join(lines + [f"| `{entry.name}` | {cell(entry.doc)} |" for entry in entries])


def paper(entry: Entry) -> str:
    """Give what the docstring of a class says about where it comes from; '' for nothing."""
    found = SOURCE.findall(inspect.cleandoc(registry_of(entry.kind)[entry.name].__doc__ or ""))
    return " ".join(" ".join(found).split())


def example(entry: Entry) -> str:
    """Name the config to copy; '' where there is none of the entry's own."""
    path = FAMILIES / f"{entry.name}.hjson"
    return f"Example: `examples/families/{path.name}`." if entry.kind in {"model", "task"} and path.exists() else ""


def cell(text: str) -> str:
    """Write text so that it stays in one cell of a Markdown table."""
    return text.replace("|", "\\|")


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
    return "| " + " | ".join(cell(text) for text in (f"`{item.key}`", item.type, default, meaning)) + " |"


def trainer_page() -> str:
    """Write the page of the Trainer: every class with its methods, every argument with its default."""
    import xdpx

    parts = ["# Reference of the Trainer", "Every class, method and argument, as it describes itself."]
    parts += [class_section(name, getattr(xdpx, name)) for name in TRAINER_CLASSES]
    return "\n\n".join(parts) + "\n"


def class_section(name: str, kind: type) -> str:
    """Write one class: what it is, its arguments when it is a dataclass of them, its methods and properties."""
    parts = [f"## {name}", listed(inspect.cleandoc(kind.__doc__ or ""))]
    arguments = fields(kind) if name.endswith("TrainingArguments") else ()
    known = {item.name for item in fields(kind.__mro__[1])} if name.startswith("Seq2SeqTrainingA") else set()
    if arguments:
        lines = ["| argument | default | meaning |", "|---|---|---|"]
        parts.append("\n".join(lines + [argument_row(item) for item in arguments if item.name not in known]))
    parts += [method_section(member, value) for member, value in inspect.getmembers(kind) if is_ours(member, value)]
    return "\n\n".join(parts)


def is_ours(name: str, member: Any) -> bool:
    """Tell whether a member is public, and written here rather than in Python's own library."""
    function = member.fget if isinstance(member, property) else member
    public = not name.startswith("_") and (inspect.isfunction(function) or inspect.ismethod(function))
    return public and str(function.__module__).startswith("xdpx")


def method_section(name: str, member: Any) -> str:
    """Write one method or property."""
    signature = "" if isinstance(member, property) else str(inspect.signature(member)).replace("self, ", "")
    shown_signature = signature.replace("(self)", "()").replace("'", "")
    return f"### `{name}{shown_signature}`\n\n{listed(inspect.getdoc(member) or '')}"


def listed(text: str) -> str:
    """Write the indented lines of a docstring (arguments, results, errors) as lists."""
    lines = []
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        if indent == 4 and lines and not lines[-1].startswith(("*", " ")):
            lines.append("")
        lines.append(f"* {line.strip()}" if indent == 4 else line)
    return "\n".join(lines)


def argument_row(item: Field[Any]) -> str:
    """Write one argument as a row of a Markdown table."""
    made = item.default_factory() if item.default_factory is not MISSING else item.default
    cells = (f"`{item.name}`", f"`{made!r}`", item.metadata.get("help", ""))
    return "| " + " | ".join(cell(text) for text in cells) + " |"


if __name__ == "__main__":
    on_pre_build()
