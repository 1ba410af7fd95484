"""Checks for wrong columns: constant ones, row numbers, swapped columns, and texts that contain the label."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from xdpx.datasets.examining.sample import SHOWN, Sample
from xdpx.datasets.examining.words import Words, whole_texts, words_of
from xdpx.datasets.findings.finding import Finding
from xdpx.datasets.findings.raw_files import LABEL_NAMES, is_column_name
from xdpx.loaders.parsers.base import Row
from xdpx.metrics import unmarked
from xdpx.tokenizers.target_map import folded, number_of

FEWEST_ROWS = 20
MOSTLY = 0.5
"""Share of rows with the same text from which a column counts as constant."""
NEARLY_ALL = 0.95
"""Minimum share of texts that are row numbers, of rows of a label that contain a telling word, and AUC of lengths."""
NEVER = 0.02
FEWEST_OF_A_LABEL = 20
ROWS_FOR_WORDS = 20_000
"""Number of evenly spaced rows in which words that reveal the label are searched."""
FAR = 10.0
"""Distance from the median, in multiples of the interquartile range, from which a number is odd."""

_ID = re.compile(r"#?[A-Za-z]{0,5}[-_ ]?\d[\d_-]*|[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}|[0-9a-fA-F]{16,64}")


def columns(sample: Sample, *, header: Row | None) -> Iterator[Finding]:
    """Yield findings about columns of texts, and about rows that are headers.

    Args:
        sample: the rows.
        header: names of the columns, if the file has them.
    """
    if len(sample) < FEWEST_ROWS:
        return
    yield from _headers_within(sample, header)
    for name, texts in sample.fields.items():
        yield from _constant(sample, name, texts)
        yield from _ids(sample, name, texts)
    if len(sample.fields) == 2:
        yield from _pairs(sample)


def _headers_within(sample: Sample, header: Row | None) -> Iterator[Finding]:
    """Yield a finding about rows that are headers, in files concatenated with their headers."""
    names = {folded(name.strip("\"'")) for name in header or ()}
    columns = [*sample.fields.values(), sample.labels]
    rows = []
    for row, cells in enumerate(zip(*columns, strict=True)):
        if len(cells[0]) > 40:
            continue
        found = [folded(cell.strip("\"'")) for cell in cells if cell]
        is_first = int(sample.lines[row]) == 1
        whole = all(cell in names for cell in found) if names else all(map(is_column_name, found))
        if whole and len(found) > 1 and not is_first and (names or found[-1] in LABEL_NAMES):
            rows.append(row)
    if rows:
        problem = "{rows} are column names within a file: files were concatenated with their headers."
        yield sample.finding("header", np.array(rows), problem, "Remove these lines.", severity="warning")


def _constant(sample: Sample, name: str, texts: Sequence[str]) -> Iterator[Finding]:
    (text, times), *_ = Counter(texts).most_common(1)
    if times < MOSTLY * len(texts) or not text.strip():
        return
    rows = np.array([row for row, each in enumerate(texts) if each == text])
    always = "always" if times == len(texts) else "mostly"
    problem = f"{name} is {always} the same: {text!r:.60} in {{rows}}."
    yield sample.finding("constant_text", rows, problem, "Is it the right column?", severity="warning")


def _ids(sample: Sample, name: str, texts: Sequence[str]) -> Iterator[Finding]:
    like = np.fromiter((_ID.fullmatch(text.strip()) is not None for text in texts), np.bool_, len(texts))
    distinct = len(set(zip(sample.splits.tolist(), texts, strict=True)))
    if like.sum() < NEARLY_ALL * len(texts) or distinct < NEARLY_ALL * len(texts):
        return
    problem = f"{name} is a row number or key: {{rows}} look like {texts[0]!r:.40}."
    yield sample.finding("id_text", np.flatnonzero(like), problem, "Choose the text column by name: fields: [...].",
                         severity="warning")  # fmt: skip


def _pairs(sample: Sample) -> Iterator[Finding]:
    """Yield findings about pairs of equal texts, and held-out pairs that are in training with the texts swapped."""
    first, second = (whole_texts(words_of(texts), len(sample)) for texts in sample.fields.values())
    rows = np.flatnonzero((first == second) & (first != 0))
    if len(rows):
        _, classes = sample.classes
        given = Counter(sample.labels[row] for row in rows.tolist() if classes[row] >= 0)
        labels = (
            f", labelled {', '.join(f'{label} ({count:,})' for label, count in given.most_common(3))}" if given else ""
        )
        severity = None if len(given) > 1 else "note"
        yield sample.finding("equal_texts", rows, f"both texts of {{rows}} are the same{labels}.",
                             "Drop them, or correct their labels.", severity=severity)  # type: ignore[arg-type]  # fmt: skip
    trained = sample.trained
    here = {pair: row for row, pair in enumerate(zip(first.tolist(), second.tolist(), strict=True)) if trained[row]}
    turned = [
        (row, here[pair])
        for row, pair in enumerate(zip(second.tolist(), first.tolist(), strict=True))
        if not trained[row] and pair in here and pair[0] != pair[1]
    ]
    if turned:
        examples = [
            sample.example(row, f"is {sample.place(other)} the other way round") for row, other in turned[:SHOWN]
        ]
        yield sample.finding("reversed_pairs", np.array([row for row, _ in turned]),
                             "{rows} stand in training the other way round.", "Take them out of one split.",
                             examples=examples)  # fmt: skip


def labelled_columns(sample: Sample) -> Iterator[Finding]:
    """Yield findings about swapped texts and labels, and texts that reveal their label. For one label per row."""
    names, classes = sample.classes
    if len(sample) < FEWEST_ROWS or len(names) < 2:
        return
    yield from _swapped(sample, names, classes)
    times = np.bincount(classes[classes >= 0], minlength=len(names))
    frequent = [index for index in np.argsort(-times).tolist()[:50] if times[index] >= FEWEST_OF_A_LABEL]
    if len(frequent) > 1 and len(names) <= len(sample) // 10:
        yield from _told_by_a_word(sample, names, classes, frequent)
        yield from _told_by_length(sample, names, classes)


def _swapped(sample: Sample, names: Sequence[str], classes: NDArray[np.int64]) -> Iterator[Finding]:
    """Yield a finding about rows, or whole columns, with text and label swapped."""
    times = np.bincount(classes[classes >= 0], minlength=len(names))
    usual = {folded(names[index]) for index in np.flatnonzero(times >= max(2, 0.001 * len(sample))).tolist()}
    long_labels = np.array([len(name.split()) >= 4 or len(name) > 30 for name in names])
    if long_labels.mean() > MOSTLY and len(names) > FEWEST_ROWS:
        texts = list(sample.fields.values())[-1]
        if len(set(texts)) <= len(sample) // 10:
            problem = (
                f"labels are texts, such as {names[0]!r:.60}, and texts are like labels, such as {texts[0]!r:.40}."
            )
            yield sample.finding("swapped_columns", np.arange(len(sample)), problem,
                                 'The label comes last; fields: ["text", "label"] takes columns by name.',
                                 severity="fault")  # fmt: skip
        return
    rows = [
        row
        for row, cells in enumerate(zip(*sample.fields.values(), strict=True))
        if any(len(cell) < 40 and folded(cell) in usual for cell in cells)
        and classes[row] >= 0
        and long_labels[classes[row]]
    ]
    if rows:
        examples = [sample.example(row, f"labelled {sample.labels[row]!r:.80}") for row in rows[:SHOWN]]
        problem = "{rows} have a label in place of their text, and a text in place of the label."
        yield sample.finding("swapped_columns", np.array(rows), problem, "Swap them back.", examples=examples,
                             severity="warning")  # fmt: skip


def _told_by_a_word(
    sample: Sample, names: Sequence[str], classes: NDArray[np.int64], frequent: Sequence[int]
) -> Iterator[Finding]:
    """Yield findings about words that nearly all rows of a label contain, and hardly any other row."""
    chosen = (classes >= 0) & (np.arange(len(sample)) % (len(sample) // ROWS_FOR_WORDS + 1) == 0)
    words = _of_rows(sample.words, chosen)
    distinct, numbers = np.unique(words.hashes_W, return_inverse=True)
    once = np.unique(numbers * np.int64(len(sample)) + words.rows_W)
    word_of, row_of = once // len(sample), once % len(sample)
    everywhere = np.bincount(word_of, minlength=len(distinct))
    all_rows = int(chosen.sum())
    for index in frequent:
        mine = int((chosen & (classes == index)).sum())
        here = np.bincount(word_of[classes[row_of] == index], minlength=len(distinct))
        elsewhere = (everywhere - here) / max(all_rows - mine, 1)
        tells = np.flatnonzero((here >= max(NEARLY_ALL * mine, FEWEST_OF_A_LABEL // 2)) & (elsewhere <= NEVER))
        if not len(tells):
            continue
        best = int(tells[np.argmax(here[tells] / mine - elsewhere[tells])])
        first = int(np.flatnonzero(numbers == best)[0])
        row = int(words.rows_W[first])
        word = sample.texts[row].lower()[words.starts_W[first] : words.ends_W[first]]
        rows = np.unique(words.rows_W[numbers == best])
        rows = rows[classes[rows] == index]
        own = word in folded(names[index])
        problem = f"'{word}' stands in {here[best]:,} of {mine:,} rows labelled '{names[index]}', "
        problem += f"and in {elsewhere[best]:.1%} of all others"
        problem += ": it is a part of the label's name." if own else "."
        yield sample.finding(
            "label_in_text", rows, problem, "Take it out, unless it is there in use too.", severity="warning"
        )


def _of_rows(words: Words, chosen: NDArray[np.bool_]) -> Words:
    """Return the words of some rows."""
    mine = chosen[words.rows_W]
    return Words(words.hashes_W[mine], words.rows_W[mine], words.starts_W[mine], words.ends_W[mine])


def _told_by_length(sample: Sample, names: Sequence[str], classes: NDArray[np.int64]) -> Iterator[Finding]:
    """Yield a finding if the length of the text alone reveals a label."""
    lengths = np.fromiter(map(len, sample.texts), np.float64, len(sample))
    mine = classes >= 0
    lengths, classes = lengths[mine], classes[mine]
    order = np.argsort(lengths, kind="stable")
    ranks = np.empty(len(order))
    ranks[order] = np.arange(len(order))
    for index, name in enumerate(names):
        count = int((classes == index).sum())
        if count < FEWEST_OF_A_LABEL or count > len(classes) - FEWEST_OF_A_LABEL:
            continue
        area = (ranks[classes == index].sum() - count * (count - 1) / 2) / (count * (len(classes) - count))
        if max(area, 1 - area) >= NEARLY_ALL:
            shorter = "shorter" if area < 0.5 else "longer"
            problem = f"texts labelled '{name}' are {shorter} than others: "
            problem += f"length alone separates them with an AUC of {max(area, 1 - area):.3f}."
            rows = np.flatnonzero(mine)[classes == index]
            yield sample.finding(
                "shortcut", rows, problem, "Are texts of all labels from the same source?", severity="warning"
            )
            return


def odd_numbers(sample: Sample) -> Iterator[Finding]:
    """Yield a finding about numeric labels that are far from the others."""
    values = np.array([number_of(label) if label else np.nan for label in sample.labels], np.float64)
    known = np.flatnonzero(np.isfinite(values))
    if len(known) < FEWEST_ROWS:
        return
    for usual in _usual(values[known]):
        low, middle, high = np.quantile(usual, [0.25, 0.5, 0.75])
        spread = float(high - low) or float(np.std(usual)) or 1.0
        rows = known[np.abs(values[known] - middle) > FAR * spread]
        if len(rows):
            examples = [sample.example(int(row), f"is {sample.labels[row]}") for row in rows[:SHOWN]]
            problem = f"{{rows}} have a number far from the others, half of which lie between {low:g} and {high:g}."
            yield sample.finding("odd_numbers", rows, problem, "Drop them if they mark a missing value.",
                                 examples=examples, severity="warning")  # fmt: skip
            return


def _usual(values_N: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """Yield the values by which to judge what is usual: all, then those without the lowest, or the highest, number.

    Where a third of the rows have -999, the quartiles of all do not show that it is far from the others.
    """
    yield values_N
    for extreme in (values_N.min(), values_N.max()):
        others = values_N[values_N != extreme]
        if 2 * len(others) >= len(values_N) and len(others) >= FEWEST_ROWS and np.ptp(others):
            yield others


def query_names(sample: Sample) -> Iterator[Finding]:
    """Yield a finding about names of queries that stand for several texts, the first text of a row being the query."""
    first = whole_texts(words_of(next(iter(sample.fields.values()))), len(sample)).tolist()
    row_of: dict[tuple[int, str], int] = {}
    other: dict[tuple[int, str], int] = {}
    keys = list(zip(sample.splits.tolist(), sample.queries, strict=True))
    for row, key in enumerate(keys):
        if first[row] != first[row_of.setdefault(key, row)]:
            other.setdefault(key, row)
    rows = np.array([row for row, key in enumerate(keys) if key in other], np.int64)
    if len(rows):
        examples = [
            sample.example(row, f"has the name {key[1]!r:.40} of another query, {sample.place(row_of[key])}")
            for key, row in list(other.items())[:SHOWN]
        ]
        problem = "{rows} are candidates of a name of a query that stands beside several query texts."
        remedy = "Give each query a name of its own, in the first column."
        yield sample.finding("query_names", rows, problem, remedy, examples=examples)


def shared_queries(sample: Sample) -> Iterator[Finding]:
    """Yield a finding about held-out candidates whose query has others in training."""
    first = whole_texts(words_of(next(iter(sample.fields.values()))), len(sample))
    trained = {text: row for row, text in enumerate(first.tolist()) if sample.trained[row] and text}
    rows = [row for row, text in enumerate(first.tolist()) if not sample.trained[row] and text in trained]
    if rows:
        examples = [
            sample.example(row, f"its query is that of {sample.place(trained[int(first[row])])}")
            for row in rows[:SHOWN]
        ]
        problem = "{rows} are held-out candidates of a query that has others in training."
        remedy = "Scores on them are too good: keep all candidates of a query in one split."
        yield sample.finding("leakage", np.array(rows), problem, remedy, examples=examples)


def tag_forms(sample: Sample) -> Iterator[Finding]:
    """Yield a finding about tags that do not say where an entity begins, where most tags of entities do."""
    known = {tag for label in sample.labels for tag in label.split()}
    odd = set(unmarked(known))
    if not odd or 2 * len(odd) > len(known - {"O"}):
        return
    texts = next(iter(sample.fields.values()))
    found = {
        row: next(pair for pair in zip(label.split(), text.split(), strict=False) if pair[0] in odd)
        for row, (label, text) in enumerate(zip(sample.labels, texts, strict=True))
        if not odd.isdisjoint(label.split())
    }
    (tag, word), *_ = found.values()
    examples = [sample.example(row, f"{tag} of {word!r:.20}") for row, (tag, word) in list(found.items())[:SHOWN]]
    problem = f"{{rows}} have a tag such as {tag!r:.40}, of the word {word!r:.20}, that does not say where an entity"
    problem += " begins, as the others do."
    remedy = "Take out lines that are no words, such as comments; write O outside of entities, and B- or I- inside."
    yield sample.finding("tag_form", np.array(list(found)), problem, remedy, examples=examples)


def tag_order(sample: Sample) -> Iterator[Finding]:
    """Yield a finding about I- tags without a preceding tag of their kind, if B- tags of that kind exist."""
    begin = {tag[2:] for label in sample.labels for tag in set(label.split()) if tag[:2] == "B-"}
    wrong: dict[int, str] = {}
    for row, label in enumerate(sample.labels):
        before = "O"
        for tag in label.split():
            if tag[:2] == "I-" and tag[2:] in begin and before not in {f"B-{tag[2:]}", f"I-{tag[2:]}"}:
                wrong.setdefault(row, f"{tag} follows {before}")
            before = tag
    if wrong:
        examples = [sample.example(row, said) for row, said in list(wrong.items())[:SHOWN]]
        problem = "{rows} have an I- tag that continues no entity of its type."
        yield sample.finding(
            "tag_order", np.array(list(wrong)), problem, "Begin each entity with B-.", examples=examples
        )
