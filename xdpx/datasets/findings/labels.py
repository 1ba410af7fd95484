"""Checks of labels: too many, a single one, imbalanced, missing, or several spellings of one."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set

import numpy as np
from numpy.typing import NDArray

from xdpx.datasets.findings.finding import Finding, Severity, some
from xdpx.tokenizers.target_map import by_writing, folded, number_of

PLACE = "labels"

FEWEST_ROWS = 20
TOO_MANY = 0.5
MANY = 0.2
"""Ratio of distinct labels to rows from which it is a fault, and from which it is a warning."""

NEARLY_ALL = 0.9
FEW_OF_A_LABEL = 5

SURE = 5.0
"""Standard errors by which another order of classes must fit the logits of a teacher better."""

NOTHINGS = frozenset({
    "nan", "null", "<na>", "#n/a", "#ref!", "#value!", "#name?", "#div/0!", "#null!", "#num!",
})  # fmt: skip
"""How pandas, JSON and spreadsheets write a missing value or a failed formula,
without those that people use as labels."""

NOTHINGS_AMONG_NUMBERS = frozenset({"none", "na", "n/a", "nil", "-", "?"})
"""What is a missing value, too, if all other labels are numbers."""


def many_labels(counts: Mapping[str, int]) -> Iterator[Finding]:
    """Yield a finding if there are nearly as many distinct labels as rows."""
    rows, found = sum(counts.values()), by_writing(counts)
    share = len(found) / max(rows, 1)
    if rows < FEWEST_ROWS or share < MANY:
        return
    problem = f"{len(found):,} different labels in {rows:,} rows, such as {some(found, 2)}."
    if all(number_of(label) is not None for label in found):
        remedy = "To predict numbers, set target_type: number. Else: is it the right column?"
    else:
        remedy = 'Is it the right column? The label comes last; fields: ["text", "label"] takes columns by name.'
    yield Finding("many_labels", "fault" if share >= TOO_MANY else "warning", PLACE, problem, remedy)


def one_label(counts: Mapping[str, int]) -> Iterator[Finding]:
    """Yield a finding if all labels are equal, so that any model scores 1."""
    found = by_writing(counts)
    if len(found) == 1 and sum(counts.values()) >= FEWEST_ROWS:
        problem = f"all {sum(counts.values()):,} rows are labelled '{next(iter(found))}': there is nothing to learn."
        yield Finding("one_label", "fault", PLACE, problem, "Is it the right column? The label comes last.")


def imbalance(counts: Mapping[str, int]) -> Iterator[Finding]:
    """Yield findings about a label of nearly all rows, and about labels too rare to be learned."""
    times = {label: sum(writings.values()) for label, writings in by_writing(counts).items()}
    rows = sum(times.values())
    if rows < FEWEST_ROWS or len(times) < 2:
        return
    label, most = max(times.items(), key=lambda item: item[1])
    if most >= NEARLY_ALL * rows:
        problem = f"{most:,} of {rows:,} rows are labelled '{label}': always predicting it scores {most / rows:.1%}."
        remedy = "Set major_metric: macro_f1; see families/bert_unbalanced for sampler and loss."
        yield Finding("imbalance", "warning", PLACE, problem, remedy)
    rare = [label for label, count in times.items() if count < FEW_OF_A_LABEL]
    if rare and len(times) < MANY * rows:
        problem = f"fewer than {FEW_OF_A_LABEL} rows are labelled {some(rare)}: too few to learn or score it."
        yield Finding("imbalance", "note", PLACE, problem, "Add rows of it, or merge it with another label.")


def written_nothings(counts: Mapping[str, int]) -> Iterator[Finding]:
    """Yield findings about labels that programs write for missing values, each of which would become a class."""
    others = [label for label in counts if folded(label) not in NOTHINGS | NOTHINGS_AMONG_NUMBERS]
    numbers = bool(others) and all(number_of(label) is not None for label in others)
    marks = _missing_by_the_others(counts.keys())
    for label, count in counts.items():
        if label in marks:
            problem = f"label {label!r} ({count:,} rows) marks a missing label in many data sets, but is learned here."
        elif folded(label) in NOTHINGS or (numbers and folded(label) in NOTHINGS_AMONG_NUMBERS):
            problem = f"label {label!r} ({count:,} rows) is a missing value to many programs, but a class here."
        else:
            continue
        yield Finding("no_labels", "warning", PLACE, problem, "If it stands for a missing label, drop these rows.")


def _missing_by_the_others(labels: Set[str]) -> Set[str]:
    """Return labels that mark rows without one, judged by the others: -1 (GLUE, SNLI), - (the files of SNLI) and so on.

    -1 does so beside numbers from 0 to more than 1, since among -1, 0 and 1 it is a grade; the others beside words.
    """
    if "-1" in labels:
        values = [number_of(label) for label in labels - {"-1"}]
        known = [value for value in values if value is not None and value >= 0]
        return {"-1"} if len(known) == len(values) and max(known, default=0) > 1 else set()
    marks = {label for label in labels if folded(label) in {"-", "--", "?", "n/a"}}
    words = [any(map(str.isalpha, label)) for label in labels - marks]
    return marks if len(words) > 1 and all(words) else set()


_THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}\.\d{3}")
"""A number with a point between its thousands, as in German: 12.500 for 12500."""
_HUNDREDS = re.compile(r"[-+]?\d{1,3}")


def points_between_thousands(counts: Mapping[str, int]) -> Iterator[Finding]:
    """Yield a finding if labels are numbers with a point between thousands, which is read as a decimal point.

    All points are followed by three digits, and some labels have no point, so that their decimals were not written to
    three places; so zeros at the end are no decimals.
    """
    grouped = [label for label in counts if _THOUSANDS.fullmatch(label)]
    whole = [label for label in counts if _HUNDREDS.fullmatch(label)]
    ends = [label for label in grouped if label[-1] == "0"]
    if whole and ends and len(grouped) + len(whole) == len(counts):
        problem = f"labels such as {ends[0]!r}, beside {whole[0]!r}, look as if points stand between thousands,"
        problem += f" but {ends[0]!r} is read as {ends[0].rstrip('0').rstrip('.')}."
        yield Finding("odd_numbers", "warning", PLACE, problem, "Write numbers without points between thousands.")


_PIECE_OF_A_LIST = re.compile(r"""\s*[\[({]\s*['"].*|.*['"]\s*[\])}]\s*""", re.DOTALL)
_LIST = re.compile(r"""\s*\[\s*(['"]).*\1\s*\]\s*""", re.DOTALL)
SEPARATORS = ",;|，；、"
WITHIN_LABELS = "/+&· "
"""Separators that are common within a label, too: told of only if all parts are labels, and rows have one each."""


def pieces_of_lists(counts: Mapping[str, int], separator: str | None) -> Iterator[Finding]:
    """Yield findings about several labels of a row that are not cut as they are written.

    Args:
        counts: count of each label.
        separator: between the labels of a row; None if rows have one label.
    """
    pieces = [label for label in counts if _PIECE_OF_A_LIST.fullmatch(label)] if separator else []
    if pieces:
        problem = f"labels such as {some(pieces, 2)} are pieces of a list, as Python and JSON write it."
        remedy = f"Write the labels of a row with {separator!r} between them, and nothing around them."
        yield Finding("label_spelling", "fault", PLACE, problem, remedy)
    elif lists := [label for label in counts if _LIST.fullmatch(label)]:
        problem = f"labels such as {some(lists, 2)} are lists, as Python and JSON write them, and each is one class."
        remedy = "If a row has several labels: write only '|' between them, and label_separator: '|'."
        yield Finding("label_spelling", "warning", PLACE, problem, remedy)
    for other in SEPARATORS if separator else SEPARATORS + WITHIN_LABELS:
        joined = [label for label in counts if other in label and other != separator]
        parts = Counter(part.strip() for label in joined for part in label.split(other))
        if _are_several(parts, counts, cut=separator is not None):
            problem = f"labels such as {some(joined, 2)} look like several, with {other!r} between them."
            remedy = f"If they are: label_separator: {other!r}"
            remedy += f", or write {separator!r} in all rows." if separator else "."
            yield Finding("label_spelling", "warning", PLACE, problem, remedy)


def _are_several(parts: Mapping[str, int], counts: Mapping[str, int], *, cut: bool) -> bool:
    """Return whether the parts of labels are labels themselves; where labels are not cut at all, only if all are."""
    if cut:
        return any(parts[part] > 1 or part in counts for part in parts)
    return len(parts) > 1 and all(part in counts for part in parts)


NAMES = frozenset({
    "label", "labels", "target", "targets", "class", "category", "sentiment", "gold_label", "tag", "tags", "ner",
    "ner_tag", "ner_tags", "标签", "类别",
})  # fmt: skip
"""Names of columns of labels that are hardly labels themselves."""


def names_of_columns(counts: Mapping[str, int]) -> Iterator[Finding]:
    """Yield findings about rare labels that are names of columns, as in a header that was read as a row."""
    rows = sum(counts.values())
    for label, count in counts.items():
        if folded(label) in NAMES and count < FEW_OF_A_LABEL and rows >= FEWEST_ROWS:
            problem = f"label {label!r} ({count:,} of {rows:,}) is the name of a column: a header was read as a row."
            yield Finding("header", "warning", PLACE, problem, "Take that line out of the file.")


def spellings(counts: Mapping[str, int], *, numbers: bool) -> Iterator[Finding]:
    """Yield findings about labels that differ only in spelling, whether they count as one class or as several.

    Args:
        counts: count of each spelling of each label.
        numbers: whether labels are numeric values, so that 1 and 1.0 are equal anyway.
    """
    written = by_writing(counts)
    for label, (_, *others) in written.items():
        if others:
            problem = f"label '{label}' is also written {some(others)}: one class, as case does not distinguish labels."
            yield Finding("label_spelling", "warning", PLACE, problem, "If they are two classes, rename one.")
    alike: dict[str, list[str]] = {}
    for label in written:
        alike.setdefault(_plainest(label, numbers=numbers), []).append(label)
    for first, *others in alike.values():
        if others:
            problem = f"labels {some([first, *others])} are spelt almost alike, but are different classes."
            yield Finding("label_spelling", "warning", PLACE, problem, "If they are one class, spell them alike.")


SCORED_WHILE_TRAINING = ("dev", "valid")
"""Prefixes of the names of splits that x-train evaluates."""

SWITCHES = {"true": "1", "false": "0"}
"""How JSON and programs write 1 and 0."""


def _plainest(label: str, *, numbers: bool) -> str:
    plain = "".join(sign for sign in unicodedata.normalize("NFKC", label) if unicodedata.category(sign) != "Cf")
    plain = folded(plain)  # Cf: invisible characters, such as U+200B and byte order marks within a file
    plain = SWITCHES.get(plain, plain)
    value = number_of(plain)
    if value is not None:
        return plain if numbers else str(value)
    return "".join(sign for sign in plain if sign not in " _-\t'\"")


def missing_labels(
    labelled: Mapping[str, bool], firsts: Mapping[str, str], *, trained: Mapping[str, bool]
) -> Iterator[Finding]:
    """Yield findings about training and validation splits without labels.

    Args:
        labelled: whether the rows of each split have labels.
        firsts: the first row of each split, to be shown.
        trained: whether each split is training data.
    """
    named = any(trained.values())
    bare = [split for split in labelled if (trained[split] or not named) and not labelled[split]]
    others = [split for split, has in labelled.items() if has]
    if others and named:
        remedy = "Look at its columns and their delimiter."
        for split in bare:
            problem = f"no line has a label, as those of {some(others)} have; the first is {firsts[split]!r:.80}."
            yield Finding("no_labels", "fault", split, problem, remedy)
        for split in labelled:  # a test file to be predicted usually has none
            if not labelled[split] and not trained[split] and split.startswith(SCORED_WHILE_TRAINING):
                problem = f"no line has a label, as those of {some(others)} have: no training can be scored on it."
                yield Finding("no_labels", "warning", split, f"{problem} The first is {firsts[split]!r:.80}.", remedy)
    elif not others:
        remedy = "Fine to predict, or to learn from a teacher; no classifier can be trained on it."
        severity: Severity = "warning" if named else "note"
        yield from (Finding("no_labels", severity, split, "no line has a label.", remedy) for split in bare)


def teacher_order(split: str, found_KK: NDArray[np.int64], names: Sequence[str]) -> Iterator[Finding]:
    """Yield a finding if the logits of a teacher fit the labels much better in another order of the classes.

    Args:
        split: the split.
        found_KK: number of rows by the class of the largest logit, and by that of the label.
        names: of the labels.
    """
    order = found_KK.argmax(axis=0)
    as_named, as_found = np.diagonal(found_KK), found_KK[order, np.arange(len(order))]
    moved = order != np.arange(len(order))
    gained, lost = int(as_found[moved].sum()), int(as_named[moved].sum())
    if len(set(order.tolist())) < len(order) or gained - lost <= SURE * math.sqrt(gained + lost):
        return
    ranked = ", ".join(repr(names[index]) for index in np.argsort(order)[:5].tolist())
    problem = f"the largest logit is of another class than the label: these logits are in the order {ranked}"
    remedy = "Name the teacher's list of labels: target_map_file: <data_dir of the teacher>/target_map.txt."
    share = (gained + lost) / max(int(found_KK.sum()), 1)
    yield Finding("teacher_order", "fault", split, f"{problem}{', ...' if len(order) > 5 else ''}.", remedy, share)
