"""Findings, i.e. possible problems of data, and their collection."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Literal, get_args

from xdpx.config.faults import ConfigError, Fault
from xdpx.logger import log
from xdpx.utils import commit, io

FILE = "findings.json"

Code = Literal[
    "header", "delimiter", "quotes", "columns", "no_labels", "many_labels", "one_label", "label_spelling", "imbalance",
    "leakage", "duplicates", "contradictions", "no_text", "unknown_tokens", "long_tokens", "cut_tokens",
    "untrained_unknown",
    "bad_lines", "encoding", "lost_characters", "control_characters", "invisible_characters", "unicode_forms", "markup",
    "escapes", "mixed_scripts", "other_script", "placeholder", "no_letters", "giant_text", "swallowed_rows",
    "constant_text", "id_text", "swapped_columns", "label_in_text", "shortcut", "equal_texts", "reversed_pairs",
    "odd_numbers", "tag_order", "tag_form", "query_names", "label_shift", "unseen_label", "length_shift",
    "near_duplicates", "near_leakage", "near_contradictions", "label_noise", "weak_slice", "teacher_order",
]  # fmt: skip
CODES: tuple[str, ...] = get_args(Code)
RunCode = Literal["refused", "path", "permission", "disk", "memory", "time"]
"""Codes of findings about a run and the machine rather than data; these cannot be ignored."""
Severity = Literal["fault", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""Worst first."""

WHY: Mapping[str, str] = {
    "header": "The column names become a sample, and one of them a class.",
    "delimiter": "The label is read as part of the text, so that there is nothing to learn from.",
    "quotes": "The model sees quotes that texts will not have in use.",
    "columns": "Texts are read as labels, or labels as texts.",
    "no_labels": "A classifier cannot learn from rows without labels; a marker for a missing label becomes a class.",
    "many_labels": "A label that is seen once cannot be learned; usually the wrong column is read.",
    "one_label": "Any model scores 100 % by always giving the same answer.",
    "label_spelling": "One class may be counted as two, or two as one.",
    "imbalance": "A model that always predicts the most frequent label looks good; rare labels are hardly learned.",
    "leakage": "The model is scored on texts that it has memorised, so the score is too good.",
    "duplicates": "Repeated rows count more than once, and bias the model towards them.",
    "contradictions": "No model can give one text two labels; the best possible score falls accordingly.",
    "no_text": "There is nothing to read: the model learns a label for the empty text.",
    "unknown_tokens": "The model cannot tell unknown tokens apart.",
    "long_tokens": "Whole sentences that are one token never occur again, so nothing is learned from them.",
    "cut_tokens": "Text beyond max_len is never read, however much it says about the label.",
    "untrained_unknown": "The unknown token keeps its random vector, which disturbs every text that contains it.",
    "bad_lines": "These rows are lost, or x-prepro stops at the first of them.",
    "encoding": "Wrongly decoded letters are other letters to the model than those it will meet in use.",
    "lost_characters": "The original character is lost; only the source has it.",
    "control_characters": "They come from broken exports, split words, and are missing from most vocabularies.",
    "invisible_characters": "Words that look alike are different tokens, and equal texts do not count as equal.",
    "unicode_forms": "The same letter in two forms becomes two tokens.",
    "markup": "The model learns tags and entities that texts in use may not have.",
    "escapes": "Escape sequences stand where characters should, and become meaningless tokens.",
    "mixed_scripts": "Lookalike letters of another alphabet make words that no vocabulary has.",
    "other_script": "A few rows in another language or script are barely learned, and mostly out of vocabulary.",
    "placeholder": "A program's marker for a missing text is read as a text with a meaning.",
    "no_letters": "Digits and punctuation alone say little about a label.",
    "giant_text": "A text far longer than all others is often an unclosed quote, or a whole file.",
    "swallowed_rows": "Rows after an unclosed quote are read as one text, labels included.",
    "constant_text": "A column that never changes says nothing about the label.",
    "id_text": "Row numbers are memorised, and say nothing about new rows.",
    "swapped_columns": "Texts are learned as classes, and labels are read as texts.",
    "label_in_text": "The model reads the answer in the text; in use it will not be there.",
    "shortcut": "The model can tell the label without reading the text; in use that may not hold.",
    "equal_texts": "Comparing a text with itself teaches nothing, or, with the contrary label, the wrong thing.",
    "reversed_pairs": "The same pair in reverse order in training and in a test makes the score too good.",
    "odd_numbers": "One extreme value dominates a squared error; -1 or 999 often mark a missing value.",
    "tag_order": "Entities are decoded from tags: an I- tag without a beginning is lost or joins another entity.",
    "tag_form": "Each run of such a tag is scored as an entity, often one that is always found: the score is too good.",
    "query_names": "Candidates of several queries are ranked as one list, so that no score of queries means anything.",
    "label_shift": "A model learns how frequent labels are; where the frequencies differ, its score says little.",
    "unseen_label": "A label that is missing from training is never predicted.",
    "length_shift": "A score on texts of one length says little about texts of another.",
    "near_duplicates": "Near-duplicates count once per copy, as repeated rows do.",
    "near_leakage": "The model is scored on texts that it has nearly memorised, so the score is too good.",
    "near_contradictions": "Almost identical texts have different labels: one of them may be wrong.",
    "label_noise": "A model learns wrong labels too, and is scored against them.",
    "weak_slice": "A good overall score may hide a group of rows that is mostly wrong.",
    "teacher_order": "The student learns each class from the logits of another class.",
    "refused": "x-prepro or x-train would stop here.",
    "path": "A run fails when it needs a file that is missing.",
    "permission": "A run that cannot write its results loses its work.",
    "disk": "A full disk ends a run part-way.",
    "memory": "A process that needs more memory than the machine has is killed.",
    "time": "A run that takes longer than expected is stopped, or waited for.",
}
"""Code -> why it matters."""


@dataclass(frozen=True)
class Example:
    """A row that shows a finding: file and line, its shortened text, and a remark."""

    place: str
    text: str
    said: str = ""


@dataclass(frozen=True)
class Finding:
    """A possible problem of data.

    Attributes:
        code: its name in `ignore_findings`.
        severity: a fault stops x-prepro; a warning should be examined; a note is for information.
        place: the file, with a line if there is one, or the split.
        problem: what was found.
        remedy: what to do.
        share: of the rows concerned, if known.
        examples: a few of these rows.
    """

    code: Code | RunCode
    severity: Severity
    place: str
    problem: str
    remedy: str
    share: float | None = None
    examples: tuple[Example, ...] = ()

    @property
    def why(self) -> str:
        """Why it matters."""
        return WHY[self.code]

    @property
    def rank(self) -> tuple[int, float]:
        """Sort key, the worst first."""
        return SEVERITIES.index(self.severity), -(self.share or 0.0)

    def __str__(self) -> str:
        return f"{self.place}: {self.problem} {self.remedy}"


class Findings:
    """A collection of findings, without those to be ignored.

    Args:
        source: of the data, for messages.
        ignored: codes of findings to ignore.
        patient: whether faults are only collected, instead of raising ConfigError.
    """

    def __init__(self, source: str, ignored: Iterable[str] = (), *, patient: bool = False) -> None:
        self._source = source
        self._patient = patient
        self._ignored = frozenset(ignored)
        self._found: list[Finding] = []

    def add(self, found: Iterable[Finding]) -> None:
        """Add findings, without duplicates and those to be ignored.

        Raises:
            ConfigError: there are faults among them, unless `patient`.
        """
        kept = [each for each in found if each.code not in self._ignored and each not in self._found]
        self._found += kept
        faults = [_fault(each) for each in kept if each.severity == "fault"]
        if faults and not self._patient:
            raise ConfigError(self._source, faults)

    @property
    def worst_first(self) -> list[Finding]:
        """All findings, sorted."""
        return sorted(self._found, key=lambda each: each.rank)

    def report(self) -> None:
        """Log each finding as one line."""
        for each in self._found:
            (log.info if each.severity == "note" else log.warning)(f"{each} [{each.code}]")

    def write(self, folder: str, sizes: Mapping[str, int]) -> None:
        """Write all findings to `findings.json` in a folder, with the sizes of the splits that were examined."""
        content = {"looked_at": dict(sizes), "findings": [asdict(each) for each in self._found]}
        commit.write_text(io.join(folder, FILE), json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _fault(found: Finding) -> Fault:
    return Fault(found.place, found.problem, f'{found.remedy} If it is meant: ignore_findings: ["{found.code}"].')


def some(things: Iterable[str], most: int = 3) -> str:
    """Return the first few items in quotes, and how many more there are."""
    listed = list(things)
    more = f" and {len(listed) - most:,} more" if len(listed) > most else ""
    return ", ".join(map(repr, listed[:most])) + more
