"""The results of x-eval for some splits, as the sections of a page and as a few lines for the log."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from xdpx.reports.page import Card, Cell, Part, Scatter, Section, Table, cell, number, share_cell
from xdpx.reports.tables import as_text

Report = Mapping[str, Any]
"""The report of one input, as in the output of `x-eval --json`."""

MOST_IN_TABLE = 30
"""With more classes than this, the page shows only the most confused pairs instead of the full confusion matrix."""
MOST_IN_TEXT = 12
SHOWN_ERRORS = 3
LENGTH_SCORES = {
    "class": "share right",
    "several": "share of rows with all labels correct",
    "tags": "texts right",
    "number": "mean error",
}
MEANINGS = {
    "acc": "share of rows that are correct",
    "exact_rows": "share of rows (for tags: whole texts) that are entirely correct",
    "macro_f1": "mean of the F1 of all classes, equally weighted",
    "mean_error": "mean absolute error",
}
_WIDE = "[\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef]"
_BETWEEN_WIDE = re.compile(f"(?<={_WIDE}) (?={_WIDE})")
SHARES = frozenset({"acc", "exact_rows", "macro_f1", "f1", "precision", "recall", "auc"})


def sections(reports: Sequence[Report]) -> list[Section]:
    """Return one section for each input that was scored."""
    return [
        Section(str(each["name"]), [_scores(each)], [inner for inner in _inner(each) if inner.parts])
        for each in reports
    ]


def _inner(report: Report) -> list[Section]:
    kind, errors = report["kind"], report["errors"]
    shown = errors["worst"]
    if kind == "number":
        title = f"The {len(shown)} largest errors"
    else:
        title = f"The worst {len(shown)} of {errors['count']:,} errors"
    return [
        Section("Types of entities" if kind == "tags" else "Classes", _classes(report)),
        Section("Confusion matrix", _confusion(report)),
        Section("True and predicted", _numbers(report)),
        Section("Calibration", _calibration(report)),
        Section("By length of text", _lengths(report)),
        Section(title, [_card(each, str(kind)) for each in shown]),
    ]


def _scores(report: Report) -> Table:
    intervals = report["intervals"]
    names = sorted(report["scores"], key=lambda name: (name not in intervals, name))
    rows = []
    for name in names:
        value, interval = report["scores"][name], intervals.get(name)
        is_share = name in SHARES and isinstance(value, float) and 0 <= value <= 1
        shown = share_cell(value, interval) if is_share else Cell(_spread(value, interval), number=True)
        rows.append([Cell(name, title=MEANINGS.get(name, "")), shown])
    return Table(["score", "value, 95 % interval"], rows, f"{report['path']}: {report['rows']:,} rows")


def _spread(value: object, interval: Sequence[float] | None) -> str:
    if interval is None or not all(map(math.isfinite, interval)):
        return number(value)
    return f"{number(value)} ({number(interval[0])} to {number(interval[1])})"


def _classes(report: Report) -> list[Part]:
    rows = [
        [Cell(each["name"]), cell(each["rows"]), cell(each["predicted"]),
         share_cell(each["precision"], each["precision_interval"]),
         share_cell(each["recall"], each["recall_interval"]), share_cell(each["f1"])]
        for each in report["classes"]
    ]  # fmt: skip
    first = ["type", "entities"] if report["kind"] == "tags" else ["class", "rows"]
    columns = [*first, "predicted", "precision", "recall", "F1"]
    return [Table(columns, rows)] if rows else []


def _confusion(report: Report) -> list[Part]:
    table, pairs = report["confusion"], report["most_confused"]
    parts: list[Part] = []
    if table is not None and len(table["labels"]) <= MOST_IN_TABLE:
        parts.append(_matrix(table["labels"], table["counts"]))
    if pairs and (not parts or len(table["labels"]) > 2):
        shown = [
            [Cell(each["true"]), Cell(each["predicted"]), cell(each["rows"]), share_cell(each["share"])]
            for each in pairs[:10]
        ]
        parts.append(Table(["true class", "predicted", "rows", "share of the true class"], shown))
    return parts


def _matrix(labels: Sequence[str], counts: Sequence[Sequence[int]]) -> Table:
    rows = []
    for index, (label, row) in enumerate(zip(labels, counts, strict=True)):
        total = sum(row)
        cells = [
            Cell(f"{count:,}", number=True, heat=count / total if total else 0.0, good=index == column,
                 title=f"{label} taken for {labels[column]}: {count:,} of {total:,}")
            for column, count in enumerate(row)
        ]  # fmt: skip
        rows.append([Cell(label), *cells])
    caption = "A row is the true class, a column the predicted one; colours are shares of the row."
    return Table(["true \\ predicted", *labels], rows, caption)


def _numbers(report: Report) -> list[Part]:
    if not report.get("dots"):
        return []
    parts: list[Part] = [Scatter(report["dots"], "wanted", "predicted", "On the dashed line, both are equal.")]
    quantiles = report["error_quantiles"]
    if quantiles:
        rows = [[Cell(f"{each['share']:.0%}"), cell(each["error"])] for each in quantiles]
        parts.append(Table(["share of rows", "error at most"], rows))
    return parts


def _lengths(report: Report) -> list[Part]:
    if len(report["by_length"]) < 2:
        return []
    is_share = report["kind"] != "number"
    rows = []
    for each in report["by_length"]:
        span = f"{each['from']:,}" if each["from"] == each["to"] else f"{each['from']:,} to {each['to']:,}"
        shown = share_cell(each["score"], each["interval"]) if is_share else cell(each["score"])
        rows.append([Cell(span), cell(each["rows"]), shown])
    return [Table(["tokens", "rows", LENGTH_SCORES[str(report["kind"])]], rows)]


def _calibration(report: Report) -> list[Part]:
    found = report.get("calibration")
    if found is None:
        return []
    rows = [
        [Cell(f"{each['confidence']:.3f}"), cell(each["rows"]), share_cell(each["right"], each["interval"])]
        for each in found["bins"]
    ]
    return [Table(["probability of the predicted class", "rows", "share right"], rows, calibrated(found))]


def calibrated(found: Mapping[str, Any]) -> str:
    """Return a sentence on the calibration: how far the predicted probabilities can be trusted."""
    way = "overconfident" if found["too_sure"] > 0 else "underconfident"
    chance = f"{found['by_chance']:.3f}, rarely more than {found['most_by_chance']:.3f}"
    told = f"Expected calibration error {found['ece']:.3f}; a perfectly calibrated model would show {chance}"
    if found["ece"] <= found["most_by_chance"]:
        return f"{told}, so no miscalibration is visible."
    return f"{told}. On average, probabilities are {way} by {abs(found['too_sure']):.3f}."


def _card(error: Mapping[str, Any], kind: str) -> Card:
    texts = [joined(text.split()) for text in error["texts"]] if kind == "tags" else error["texts"]
    return Card(str(error["place"]), texts, _said(error, kind))


def joined(words: Sequence[str]) -> str:
    """Return words joined into a text: separated by spaces, except between Chinese characters and the like."""
    return _BETWEEN_WIDE.sub("", " ".join(words))


def _said(error: Mapping[str, Any], kind: str) -> list[tuple[str, str]]:
    if kind == "tags":
        words = str(error["texts"][0]).split() if error["texts"] else []
        named = {key: ", ".join(_span(each, words) for each in error[key]) or "nothing" for key in ("missed", "false")}
        return [("missed", named["missed"]), ("found wrongly", named["false"])]
    if kind == "number":
        return [("true", number(error["true"])), ("predicted", number(error["predicted"])),
                ("error", number(error["error"]))]  # fmt: skip
    if kind == "several":
        shown = {label: f"{label} ({value:.3f})" for label, value in error["probabilities"].items()}
        wanted = [text for label, text in shown.items() if label in error["true"]]
        surplus = [text for label, text in shown.items() if label not in error["true"]]
        return [("true", ", ".join(error["true"]) or "none"), ("missed", ", ".join(wanted) or "nothing"),
                ("predicted wrongly", ", ".join(surplus) or "nothing")]  # fmt: skip
    return [
        ("true", str(error["true"])),
        ("predicted", str(error["predicted"])),
        ("probability", number(error["probability"], 3)),
        ("probability of the true class", number(error["probability_of_true"], 3)),
    ]


def _span(entity: Mapping[str, Any], words: Sequence[str]) -> str:
    text = joined(words[entity["start"] : entity["stop"]]) or f"words {entity['start']} to {entity['stop'] - 1}"
    return f"{entity['kind']} “{text}”"


def in_words(report: Report) -> str:
    """Return lines for the log: intervals, calibration, the confusion matrix of few classes, and the worst errors."""
    lines = []
    intervals = [f"{name} {number(report['scores'][name])} ({number(low, 3)} to {number(high, 3)})"
                 for name, (low, high) in report["intervals"].items()]  # fmt: skip
    if intervals:
        lines.append(f"{report['name']}, {report['rows']:,} rows, with 95 % intervals: {', '.join(intervals)}")
    if report.get("calibration") is not None:
        lines.append(f"{report['name']}: {calibrated(report['calibration'])}")
    table = report["confusion"]
    if table is not None and len(table["labels"]) <= MOST_IN_TEXT:
        rows = [{"true \\ predicted": label, **dict(zip(table["labels"], row, strict=True))}
                for label, row in zip(table["labels"], table["counts"], strict=True)]  # fmt: skip
        lines.append(as_text(rows, ["true \\ predicted", *table["labels"]]).rstrip())
    for each in report["errors"]["worst"][:SHOWN_ERRORS]:
        said = ", ".join(f"{name} {value}" for name, value in _said(each, str(report["kind"])))
        text = " | ".join(each["texts"]).replace("\n", " ")
        lines.append(f"worst: {each['place']}: {said}: {text if len(text) <= 80 else text[:77] + '...'}")
    return "\n".join(lines)
