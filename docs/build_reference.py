"""Write docs/reference/ from what is declared: a page for each command, kind and module. MkDocs calls it."""

from __future__ import annotations

import inspect
import re
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, get_type_hints

from xdpx.config import catalogue
from xdpx.config.declarations import Declaration, Entry
from xdpx.config.grouping import heading
from xdpx.config.hints import shown
from xdpx.config.registry import registry_of
from xdpx.config.value_types import read_type, text_of

KINDS = {
    "command": "Commands",
    "task": "Tasks",
    "model": "Models",
    "loss": "Losses",
    "optimizer": "Optimizers",
    "lr_scheduler": "Learning rate schedules",
    "processor": "Processors",
    "loader": "Loaders",
    "parser": "Parsers",
    "tokenizer": "Tokenizers",
    "dataset": "Data sets",
    "sampler": "Samplers",
    "callback": "Callbacks",
    "tuner": "Tuners",
    "schedule": "Schedules of a search",
}
SPLIT = {"model", "loss", "task", "processor"}
"""Kinds of which each name has a page of its own; the names of the others share one."""
FOLDER = Path(__file__).with_name("reference")
FAMILIES = Path(__file__).parents[1] / "examples/families"
SOURCE = re.compile(r"^Sources?\b[^:\n]*:(?:.+\n?)+", re.MULTILINE)
"""The paragraph of a docstring that names the paper."""
TRAINER_PAGES = {
    "Trainer": ("Trainer", "Seq2SeqTrainer"),
    "TrainingArguments": ("TrainingArguments", "Seq2SeqTrainingArguments", "HfArgumentParser"),
    "Trainer callbacks": (
        "TrainerCallback",
        "TrainerState",
        "TrainerControl",
        "DefaultFlowCallback",
        "EarlyStoppingCallback",
        "PrinterCallback",
        "ProgressCallback",
    ),
}


def on_pre_build(config: Any = None, **_: Any) -> None:
    """Write the pages, unless they are current: rewriting them would make `mkdocs serve` build for ever."""
    wanted = {FOLDER / name: text for name, text in pages().items()}
    there = {path: path.read_text(encoding="utf-8") for path in FOLDER.rglob("*.md")}
    if wanted != there:
        shutil.rmtree(FOLDER, ignore_errors=True)
        for path, text in wanted.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """Return every page of the reference by its name: commands, kinds, modules and the Trainer's classes."""
    found = {"index.md": index()}
    for kind in KINDS:
        if kind == "command":
            found |= {f"{command}.md": command_page(command) for command in commands()}
            found |= {
                f"{entry.name.replace(' ', '/')}.md": script_page(entry) for entry in entries(kind) if " " in entry.name
            }
        else:
            found[f"{kind}.md"] = kind_page(kind)
        if kind in SPLIT:
            found |= {f"{kind}/{entry.name}.md": module_page(entry) for entry in entries(kind)}
    return found | {f"{slug(title)}.md": trainer_page(title) for title in TRAINER_PAGES}


def entries(kind: str) -> list[Entry]:
    """Return the names of a kind that ship with XDPX."""
    shipped = registry_of(kind).shipped
    return [entry for entry in catalogue.entries(kind) if entry.name in shipped]


def commands() -> list[str]:
    """Return the commands; those of x-script count as one."""
    return sorted({entry.name.split()[0] for entry in entries("command")})


def slug(title: str) -> str:
    """Return the name of a page's file."""
    return title.lower().replace(" ", "-")


def index() -> str:
    """Write the first page: where everything is."""
    kinds = [f"* [{title}]({kind}.md): `{kind}:` in a config" for kind, title in KINDS.items() if kind != "command"]
    return "\n".join([
        "# Reference",
        "",
        "Every key of every command and module, from the same declarations that check configs. "
        "`x-train --help KEY` prints the same.",
        "",
        "## Commands",
        "",
        *(f"* [`{command}`]({command}.md)" for command in commands()),
        "",
        "## What a config selects by name",
        "",
        *kinds,
        "",
        "## The Trainer",
        "",
        *(f"* [{title}]({slug(title)}.md): {', '.join(f'`{name}`' for name in names)}"
          for title, names in TRAINER_PAGES.items()),
        "",
    ])  # fmt: skip


def command_page(command: str) -> str:
    """Write the page of a command: its keys, group by group; of x-script, where the page of each script is."""
    found = [entry for entry in entries("command") if entry.name.split()[0] == command]
    if len(found) > 1:
        rows = [f"| [`{entry.name}`]({entry.name.replace(' ', '/')}.md) | {cell(entry.doc)} |" for entry in found]
        return "\n\n".join([f"# `{command}`", "\n".join(["| script | meaning |", "|---|---|", *rows])]) + "\n"
    (entry,) = found
    parts = [f"# `{command}`", prose(entry.doc)]
    groups: dict[str, list[Declaration]] = {}
    for item in entry.parameters:
        groups.setdefault(heading(entry, item), []).append(item)
    for name, items in groups.items():
        parts += [f"## {name}"] if len(groups) > 1 else []
        parts.append(keys(items))
    return "\n\n".join(parts) + "\n"


def script_page(entry: Entry) -> str:
    """Write the page of a script of x-script: its keys."""
    return "\n\n".join([f"# `{entry.name}`", prose(entry.doc), keys(entry.parameters)]) + "\n"


def kind_page(kind: str) -> str:
    """Write the page of a kind: one line for each name, and the keys where the names have no pages of their own."""
    parts = [f"# {KINDS[kind]}", f"A config selects one with `{kind}: NAME`."]
    if kind in SPLIT:
        rows = [f"| [`{entry.name}`]({kind}/{entry.name}.md) | {cell(entry.doc)} |" for entry in entries(kind)]
        return "\n\n".join([*parts, "\n".join(["| name | meaning |", "|---|---|", *rows])]) + "\n"
    return "\n\n".join([*parts, *(f"## `{entry.name}`\n\n{section(entry)}" for entry in entries(kind))]) + "\n"


def module_page(entry: Entry) -> str:
    """Write the page of one name."""
    return f"# `{entry.name}`\n\n[{KINDS[entry.kind]}](../{entry.kind}.md)\n\n{section(entry)}\n"


def section(entry: Entry) -> str:
    """Write one module: its meaning, where it comes from, and its keys."""
    parts = [prose(entry.doc), prose(paper(entry)), example(entry), keys(entry.parameters)]
    return "\n\n".join(part for part in parts if part)


def keys(items: Iterable[Declaration]) -> str:
    """Write a table of keys; '' for none."""
    rows = [row(item) for item in items]
    return "\n".join(["| key | meaning |", "|---|---|", *rows]) if rows else ""


def row(item: Declaration) -> str:
    """Write one key as a row of a Markdown table: what it means, then its type, bounds and default."""
    words, null, _ = item.value_type.describe().partition(" or null")
    notes = [f"{words} {item.bounds()}".strip() + null]
    notes.append("required" if item.required else f"default `{shown(item.default)}`")
    if item.when:
        key, operator, value = item.when
        notes.append(f"only when `{key}` {operator} `{shown(value)}`")
    if item.relative:
        notes.append("relative numbers allowed")
    return two_columns(item.key, item.doc, notes)


def two_columns(name: str, meaning: str, notes: list[str]) -> str:
    """Write a row of two columns, which fit a phone: a name, and its meaning with notes in small letters below."""
    small = f"<small>{cell('; '.join(notes))}</small>"
    return f"| `{name}` | {cell(meaning.rstrip('.') + '.') + '<br>' if meaning else ''}{small} |"


def cell(text: str) -> str:
    """Write text so that it stays in one cell of a Markdown table."""
    return prose(" ".join(text.split())).replace("|", "\\|")


def prose(text: str) -> str:
    """Escape what a browser would take for a tag (`<best>`), outside code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts)


def paper(entry: Entry) -> str:
    """Return what the docstring of a class says about where it comes from; '' for nothing."""
    found = SOURCE.findall(inspect.cleandoc(registry_of(entry.kind)[entry.name].__doc__ or ""))
    return " ".join(" ".join(found).split())


def example(entry: Entry) -> str:
    """Name the config to copy; '' where there is none of the entry's own."""
    path = FAMILIES / f"{entry.name}.hjson"
    return f"Example: `examples/families/{path.name}`." if entry.kind in {"model", "task"} and path.exists() else ""


def trainer_page(title: str) -> str:
    """Write a page of the Trainer: classes with their methods, arguments with their defaults."""
    import xdpx

    parts = [f"# {title}", "Every class, method and argument, as it describes itself."]
    return "\n\n".join([*parts, *(class_section(name, getattr(xdpx, name)) for name in TRAINER_PAGES[title])]) + "\n"


def class_section(name: str, kind: type) -> str:
    """Write one class: what it is, its arguments when it is a dataclass of them, its methods and properties."""
    parts = [f"## {name}", listed(inspect.cleandoc(kind.__doc__ or ""))]
    arguments = fields(kind) if name.endswith("TrainingArguments") else ()
    known = {item.name for item in fields(kind.__mro__[1])} if name.startswith("Seq2SeqTrainingA") else set()
    if arguments:
        hints = get_type_hints(kind)
        rows = [argument_row(item, hints[item.name]) for item in arguments if item.name not in known]
        parts.append("\n".join(["| argument | meaning |", "|---|---|", *rows]))
    parts += [method_section(member, value) for member, value in inspect.getmembers(kind) if is_ours(member, value)]
    return "\n\n".join(parts)


def is_ours(name: str, member: Any) -> bool:
    """Tell whether a member is public, and written here rather than in Python's own library."""
    function = member.fget if isinstance(member, property) else member
    public = not name.startswith("_") and (inspect.isfunction(function) or inspect.ismethod(function))
    return public and str(function.__module__).startswith("xdpx")


def method_section(name: str, member: Any) -> str:
    """Write one method with the names and defaults of its parameters, or one property."""
    if isinstance(member, property):
        return f"### `{name}`\n\n{listed(inspect.getdoc(member) or '')}"
    parameters = list(inspect.signature(member).parameters.values())
    parameters = [each.replace(annotation=inspect.Parameter.empty) for each in parameters if each.name != "self"]
    signature = inspect.Signature(parameters)
    return f"### `{name}`\n\n```python\n{name}{signature}\n```\n\n{listed(inspect.getdoc(member) or '')}"


def listed(text: str) -> str:
    """Write the indented lines of a docstring (arguments, results, errors) as lists."""
    lines: list[str] = []
    for line in prose(text).splitlines():
        indent = len(line) - len(line.lstrip())
        if indent == 4 and lines and not lines[-1].startswith(("*", " ")):
            lines.append("")
        lines.append(f"* {line.strip()}" if indent == 4 else line)
    return "\n".join(lines)


def argument_row(item: Field[Any], hint: object) -> str:
    """Write one argument as a row of a Markdown table."""
    made = item.default_factory() if item.default_factory is not MISSING else item.default
    words: list[str] = []
    with suppress(TypeError, ValueError, KeyError):
        words.append(read_type(text_of(hint)).describe().replace("null", "None"))
    return two_columns(item.name, item.metadata.get("help", ""), [*words, f"default `{made!r}`"])


if __name__ == "__main__":
    on_pre_build()
