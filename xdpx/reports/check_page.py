"""The findings of x-check as the sections of a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdpx.reports.check_text import outlook_in_words, remedy_of, split_row
from xdpx.reports.page import Card, Cell, Note, Part, Section, Table, cell, share_cell

SHOWN_SUSPECTS = 100
MOST_LABELS = 50


def sections(told: Mapping[str, Any]) -> list[Section]:
    """Return the sections of the page.

    Args:
        told: the output of `x-check --json`.
    """
    found = told["findings"]
    parts: list[Part] = [Note("No problems found.")] if not found else []
    inner = [
        Section(f"{each['severity']}: {each['code'].replace('_', ' ')}, {each['place']}", _finding(each))
        for each in found
    ]
    all_parts = [
        Section("Findings, the worst first", parts, inner),
        Section("Splits", _splits(told)),
        Section("Labels", _labels(told["labels"])),
        Section("Training", [Note(line) for line in outlook_in_words(told["outlook"])]),
        Section("Rows whose label is likely wrong, the most certain first", _suspects(told)),
    ]
    return [each for each in all_parts if each.parts or each.sections]


def _finding(found: Mapping[str, Any]) -> list[Part]:
    words = [found["problem"], f"Why it matters: {found['why']}", f"What to do: {remedy_of(found)}"]
    cards = [
        Card(each["place"], [each["text"]], [("", each["said"])] if each["said"] else []) for each in found["examples"]
    ]
    return [*map(Note, words), *cards]


def _splits(told: Mapping[str, Any]) -> list[Part]:
    rows = [split_row(each) for each in told["splits"]]
    if not rows:
        return []
    cells = [[Cell(text, number=index > 0) for index, text in enumerate(row.values())] for row in rows]
    caption = "cut: share of tokens beyond max_len, which are never read. unknown: share that is not in the vocabulary."
    return [Table(list(rows[0]), cells, caption)]


def _labels(labels: Mapping[str, int]) -> list[Part]:
    total = sum(labels.values())
    rows = [
        [Cell(label), cell(count), share_cell(count / total)] for label, count in list(labels.items())[:MOST_LABELS]
    ]
    more = f"{len(labels) - MOST_LABELS:,} more labels are not shown." if len(labels) > MOST_LABELS else ""
    return [Table(["label", "rows", "share"], rows, more)] if rows else []


def _suspects(told: Mapping[str, Any]) -> list[Part]:
    noise = any(each["code"] == "label_noise" for each in told["findings"])
    shown = told["suspects"][:SHOWN_SUSPECTS] if noise else []
    return [
        Card(each["place"], [each["text"]],
             [("labelled", each["label"]), ("likely", each["likely"]), ("probability", f"{each['probability']:.3f}")])
        for each in shown
    ]  # fmt: skip
