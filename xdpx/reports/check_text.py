"""The findings of x-check as lines for a terminal, the most severe first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import fill
from typing import Any

from xdpx.reports.tables import as_text as table_text
from xdpx.utils.progress import format_bytes, format_seconds

WIDTH = 118
MOST_LABELS = 12


def as_text(told: Mapping[str, Any]) -> str:
    """Return the whole report as text.

    Args:
        told: the output of `x-check --json`.
    """
    return "\n".join(_lines(told)) + "\n"


def _lines(told: Mapping[str, Any]) -> Iterator[str]:
    yield f"x-check {told['config']}: {told['summary']}"
    rows = [split_row(each) for each in told["splits"]]
    if rows:
        yield ""
        yield table_text(rows, list(rows[0])).rstrip()
    if told["labels"]:
        yield f"labels: {labels_in_words(told['labels'])}"
    yield from (f"training: {line}" for line in outlook_in_words(told["outlook"]))
    for each in told["findings"]:
        yield ""
        yield from _finding(each)


def split_row(split: Mapping[str, Any]) -> dict[str, str]:
    """Return the row of one split for the table of splits."""
    shares = {key: "" if split[key] is None else f"{split[key]:.1%}" for key in ("cut_share", "unknown_share")}
    mean, longest = split["tokens_per_text"], split["longest"]
    return {
        "split": split["name"], "rows": f"{split['rows']:,}", "labelled": "yes" if split["labelled"] else "no",
        "tokens/text": "" if mean is None else f"{mean:.1f}", "longest": "" if longest is None else f"{longest:,}",
        "max_len": "" if split["max_len"] is None else f"{split['max_len']:,}",
        "cut": shares["cut_share"], "unknown": shares["unknown_share"],
    }  # fmt: skip


def labels_in_words(labels: Mapping[str, int]) -> str:
    """Return the share of each label, the most frequent first."""
    total = sum(labels.values())
    shown = [f"{label} {count / total:.1%} ({count:,})" for label, count in list(labels.items())[:MOST_LABELS]]
    more = f", and {len(labels) - MOST_LABELS:,} more" if len(labels) > MOST_LABELS else ""
    return ", ".join(shown) + more


def outlook_in_words(outlook: Mapping[str, Any] | None) -> list[str]:
    """Return the estimated time and memory of a training run, one sentence per line; [] without an estimate."""
    if outlook is None:
        return []
    seconds = outlook["updates"] * outlook["seconds_per_update"]
    return [
        f"{outlook['updates']:,} updates of {outlook['seconds_per_update']:.3g} s: about {format_seconds(seconds)} on "
        "this machine, without evaluations",
        f"{format_bytes(outlook['peak_bytes'])} of {outlook['memory']} so far; a checkpoint of weights takes "
        f"{format_bytes(outlook['weights_bytes'])}, a full one {format_bytes(outlook['state_bytes'])}",
    ]


def _finding(found: Mapping[str, Any]) -> Iterator[str]:
    yield f"{found['severity'].upper()} [{found['code']}] {found['place']}"
    yield _filled("", found["problem"])
    yield _filled("why: ", found["why"])
    yield _filled("do:  ", remedy_of(found))
    for example in found["examples"]:
        said = f" ({example['said']})" if example["said"] else ""
        yield f"    {example['place']}{said}: {example['text']}"


def remedy_of(found: Mapping[str, Any]) -> str:
    """Return what to do about a finding, including how to ignore it."""
    meant = f' If it is intended: ignore_findings: ["{found["code"]}"].' if found["can_be_ignored"] else ""
    return f"{found['remedy']}{meant if found['severity'] != 'note' else ''}".strip()


def _filled(name: str, text: str) -> str:
    indent = " " * (len(name) + 2)
    return fill(text, WIDTH, initial_indent=f"  {name}", subsequent_indent=indent, break_long_words=False,
                break_on_hyphens=False)  # fmt: skip
