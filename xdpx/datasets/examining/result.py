"""The result of x-check as plain values: the output of `x-check --json`, and the source of its text and page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from xdpx.datasets.examining.examination import Examination
from xdpx.datasets.examining.noise import Crossed
from xdpx.datasets.examining.sample import Sample
from xdpx.datasets.findings.finding import CODES, SEVERITIES, Finding

FORMAT = 1
MOST_SUSPECTS = 2000


def plain_result(
    config: str, command: str, found: Sequence[Finding], seen: Examination | None, outlook: object, *, seconds: float
) -> dict[str, Any]:
    """Return the complete result as JSON-serialisable values.

    Args:
        config: path of the config that was checked.
        command: that the config is for.
        found: all findings, the worst first.
        seen: examination of the data; None if they could not be read.
        outlook: a dataclass with the expected cost of training; None if unknown.
        seconds: total duration.
    """
    sample = seen.sample if seen is not None else None
    rows = sum(sample.rows_seen.values()) if sample is not None else 0
    known = seen.crossed if seen is not None else None
    return {
        "format": FORMAT,
        "config": config,
        "command": command,
        "summary": _summary(found, sample, rows, seconds),
        "rows": rows,
        "rows_looked_at": len(sample) if sample is not None else 0,
        "splits": _splits(seen),
        "tokens_counted_in": seen.part if seen is not None else None,
        "labels": seen.labels if seen is not None else {},
        "findings": [_finding(each) for each in _with_examples(found, sample)],
        "model": _model(known),
        "suspects": _suspects(sample, known) if sample is not None and known is not None else [],
        "outlook": asdict(outlook) if outlook is not None else None,  # type: ignore[call-overload]
        "seconds": {"all": seconds, **(seen.seconds if seen is not None else {})},
    }


def _summary(found: Sequence[Finding], sample: Sample | None, rows: int, seconds: float) -> str:
    times = Counter(each.severity for each in found)
    counted = [f"{times[name]} {name}{'s' * (times[name] != 1)}" for name in SEVERITIES if times[name]]
    looked = (
        f"{rows:,} rows" if sample is None or sample.is_whole else f"{rows:,} rows, {len(sample):,} of them closely"
    )
    what = ", ".join(counted) or "nothing found"
    return f"{what} in {looked} ({seconds:.1f} s)" if sample is not None else f"{what} ({seconds:.1f} s)"


def _with_examples(found: Sequence[Finding], sample: Sample | None) -> Sequence[Finding]:
    """Return findings with examples added: the rows that a finding without examples names by file and line."""
    if sample is None:
        return found
    named = {each: [(path, int(line)) for path in sample.paths for line in _lines_named(path, each)] for each in found}
    wanted = {place for each, places in named.items() if not each.examples for place in places}
    paths = [sample.paths[split] for split in sample.splits.tolist()] if wanted else []
    rows = {place: row for row, place in enumerate(zip(paths, sample.lines.tolist(), strict=False)) if place in wanted}
    return [
        replace(each, examples=tuple(sample.example(rows[place]) for place in places if place in rows))
        if not each.examples else each
        for each, places in named.items()
    ]  # fmt: skip


def _lines_named(path: str, found: Finding) -> list[str]:
    return list(dict.fromkeys(re.findall(re.escape(path) + r":(\d+)", f"{found.place} {found.problem}")))


def _finding(found: Finding) -> dict[str, Any]:
    return {**asdict(found), "why": found.why, "can_be_ignored": found.code in CODES}


def _splits(seen: Examination | None) -> list[dict[str, Any]]:
    if seen is None or seen.sample is None:
        return []
    listed = []
    for split, path, labelled in zip(seen.sample.names, seen.sample.paths, seen.sample.labelled, strict=True):
        tally = seen.tallies.get(split)
        listed.append({
            "name": split, "path": path, "rows": seen.sample.rows_seen[split], "labelled": labelled,
            "bad_lines": seen.sample.num_bad[split],
            "tokens": tally.tokens if tally else None,
            "tokens_per_text": tally.tokens / tally.texts if tally and tally.texts else None,
            "longest": tally.longest if tally else None, "max_len": tally.max_len if tally else None,
            "cut_share": tally.cut / tally.tokens if tally and tally.tokens else None,
            "unknown_share": tally.unknown_share if tally else None,
            "empty": tally.empty if tally else None,
        })  # fmt: skip
    return listed


def _model(known: Crossed | None) -> dict[str, Any] | None:
    if known is None:
        return None
    return {
        "rows": len(known.rows), "accuracy": known.accuracy, "most_frequent": known.guessing, "noise": known.noise,
        "has_a_say": known.has_a_say,
    }  # fmt: skip


def _suspects(sample: Sample, known: Crossed) -> list[dict[str, Any]]:
    """Return the rows whose label is likely wrong, the most certain first."""
    if not known.has_a_say:
        return []
    best = known.shares.argmax(axis=1)
    listed = []
    for index in known.suspects[:MOST_SUSPECTS].tolist():
        example = sample.example(int(known.rows[index]))
        listed.append({
            "place": example.place, "text": example.text, "label": known.names[known.given[index]],
            "likely": known.names[best[index]], "probability": round(float(known.shares[index, best[index]]), 4),
        })  # fmt: skip
    return listed
