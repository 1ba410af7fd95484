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
    "odd_numbers", "tag_order", "label_shift", "unseen_label", "length_shift",
    "near_duplicates", "near_leakage", "near_contradictions", "label_noise", "weak_slice", "teacher_order",
]  # fmt: skip
CODES: tuple[str, ...] = get_args(Code)
RunCode = Literal["refused", "path", "permission", "disk", "memory", "time"]
"""Codes of findings about a run and the machine rather than data; these cannot be ignored."""
Severity = Literal["fault", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""Worst first."""

WHY: Mapping[str, str] = {
    "header": "The names of columns become a sample, and its label a class of its own.",
    "delimiter": "The label is read as text, so that there is nothing to learn from.",
    "quotes": "A model sees quotes that no text will have when it is used.",
    "columns": "Texts are read as labels, or labels as texts.",
    "no_labels": "No classifier learns from rows without labels, and a written nothing becomes a class.",
    "many_labels": "A label that is seen once cannot be learned; most often a wrong column is read.",
    "one_label": "Any model scores 100 % by always giving the same answer.",
    "label_spelling": "Two writings are easily one class taken for two, or two taken for one.",
    "imbalance": "A model that always gives the most frequent label seems good; rare labels are hardly learned.",
    "leakage": "The model is scored on what it has learned by heart: the score is too good.",
    "duplicates": "Rows that stand there twice count twice, and move the model towards them.",
    "contradictions": "No model can give two labels to one text; the best score falls by as much.",
    "no_text": "There is nothing to read: the model learns the label of nothing.",
    "unknown_tokens": "All unknown tokens are one and the same to the model.",
    "long_tokens": "Whole sentences that are one token are never seen again, so that nothing is learned from them.",
    "cut_tokens": "What stands behind max_len is never read, however much it says about the label.",
    "untrained_unknown": "The unknown token keeps its random vector, which disturbs every text that it stands in.",
    "bad_lines": "These rows are lost, or x-prepro stops at the first of them.",
    "encoding": "Letters that were decoded wrongly are other letters to the model than those in use.",
    "lost_characters": "The letter that stood there is lost; only the source has it.",
    "control_characters": "They come from broken exports, split words, and are unknown to most vocabularies.",
    "invisible_characters": "Words that look alike are different tokens, and equal texts are not found to be equal.",
    "unicode_forms": "The same letter in two writings is two tokens.",
    "markup": "The model learns tags and entities, which texts in use may not have.",
    "escapes": "A backslash and letters stand where a character should: tokens of no word.",
    "mixed_scripts": "Letters of another alphabet that look alike make words that no vocabulary has.",
    "other_script": "A few rows in another language or script are barely learned, and mostly unknown to a vocabulary.",
    "placeholder": "What programs write for a missing text is read as a text with a meaning.",
    "no_letters": "Nothing but digits and signs says little about a label.",
    "giant_text": "A text far longer than all others is often a quote that was never closed, or a whole file.",
    "swallowed_rows": "Rows behind an unclosed quote are read as one text, and their labels with it.",
    "constant_text": "A column that is always the same says nothing about the label.",
    "id_text": "A number of the row is learned by heart and says nothing about new rows.",
    "swapped_columns": "A text is learned as a class, and a label is read as a text.",
    "label_in_text": "The model reads the answer instead of the text; in use it will not be there.",
    "shortcut": "The model need not read the text to know the label; in use that may not hold.",
    "equal_texts": "Comparing a text with itself teaches nothing, and against the label it teaches the wrong thing.",
    "reversed_pairs": "The same pair the other way round in training and in a test makes the score too good.",
    "odd_numbers": "One value far from all others decides a squared error; -1 or 999 often stand for a missing value.",
    "tag_order": "Entities are read out of tags: an inner tag without a beginning is lost or joined to another one.",
    "label_shift": "A model learns how frequent labels are; where they are otherwise, its score says little.",
    "unseen_label": "What was never trained is never predicted.",
    "length_shift": "A score on texts of another length says little about those that are trained on.",
    "near_duplicates": "Rows that are nearly the same count as often as they stand there.",
    "near_leakage": "The model is scored on what it has nearly learned by heart: the score is too good.",
    "near_contradictions": "Texts that hardly differ have different labels: one of them may be wrong.",
    "label_noise": "A model learns wrong labels too, and is scored against them.",
    "weak_slice": "A good score of the whole may hide rows of one kind that are mostly wrong.",
    "teacher_order": "A student learns each class by the logits of another one: it says the contrary of its teacher.",
    "refused": "x-prepro or x-train would stop here.",
    "path": "What is not there cannot be read when the run needs it.",
    "permission": "A run that cannot write loses its work.",
    "disk": "A full disk ends a run in the middle.",
    "memory": "A process that needs more memory than there is gets killed.",
    "time": "A run that is longer than expected is stopped or waited for.",
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
