"""Run the checks of findings on all data of x-prepro while they are being processed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xdpx.datasets.findings import decoding, labels, raw_files, tokens
from xdpx.datasets.findings.finding import Findings
from xdpx.datasets.findings.same_texts import SameTexts, TextKeys
from xdpx.datasets.findings.tokens import Tally
from xdpx.loaders.base import Loader
from xdpx.loaders.parsers.base import Parser
from xdpx.loaders.parsers.lines import LineParser
from xdpx.logger import log
from xdpx.processors.samples import Ragged
from xdpx.tokenizers.agreement import FREE
from xdpx.tokenizers.base import Tokenizer
from xdpx.tokenizers.target_map import folded
from xdpx.tokenizers.vocabulary import Vocabulary

MARK = re.compile(r"\[[^\[\]\s]*\w[^\[\]\s]*\]|<[^<>\s]*\w[^<>\s]*>")
"""Tokens that mark something in a text, such as the ends of an entity."""


@dataclass(frozen=True)
class SplitFile:
    """The path of a raw file, and whether its rows have labels."""

    path: str
    labelled: bool


def is_trained_on(split: str) -> bool:
    """Return whether a split is training data, judged by its name: `train`, `train_0`, `sst2.train`."""
    return "train" in split.lower()


class Look:
    """Checks data at several stages of x-prepro: certain errors are raised at once, other findings reported at the end.

    Args:
        sources: raw files by split.
        loader, parser: selected by the config.
        findings: collects what is found.
        target_type: of labels, a key of x-prepro.
        own_labels: whether the list of labels comes from these data, not from a file.
    """

    def __init__(
        self,
        sources: Mapping[str, SplitFile],
        loader: Loader,
        parser: Parser,
        findings: Findings,
        *,
        target_type: str,
        own_labels: bool,
    ) -> None:
        self._sources = sources
        self._loader = loader
        self._parser = parser
        self._findings = findings
        self._numbers = target_type == "number"
        self._own_labels = own_labels
        self._trained = {split: is_trained_on(split) for split in sources}
        self._heads = {split: raw_files.head_of(each.path, parser) for split, each in sources.items()}
        self._tallies: dict[str, Tally] = {}
        self._same = SameTexts()
        self._teachers: dict[str, NDArray[np.int64]] = {}
        self._names: Sequence[str] = ()
        self._ready = True
        self._learns_labels = False

    @property
    def remembers_texts(self) -> bool:
        """Whether to compare keys of texts; not if lines are joined into blocks, since then no text is a sample."""
        return self._loader.merger(1) is None

    def at_files(self, *, learns_labels: bool) -> None:
        """Check the first rows of the raw files.

        Args:
            learns_labels: whether labels are learnt from samples of this kind.

        Raises:
            ConfigError: a header would be read as a row, lines are split wrongly, or training data have no labels.
        """
        self._learns_labels = learns_labels
        for split, source in self._sources.items():
            head = self._heads[split]
            self._findings.add(raw_files.encoding(source.path, self._parser))
            self._findings.add(decoding.wrong_characters(source.path, head))
            self._findings.add(raw_files.quotes(source.path, head, self._parser))
            if self._loader.num_targets:
                self._findings.add(raw_files.header(source.path, head, self._parser, labelled=False))
            if not source.labelled:
                self._findings.add(raw_files.another_reading(source.path, head, self._parser, self._loader))
        if learns_labels and self._loader.num_targets and not self._loader.between:
            labelled = {split: source.labelled for split, source in self._sources.items()}
            firsts = {split: "\t".join(head.rows[0]) if head.rows else "" for split, head in self._heads.items()}
            self._findings.add(labels.missing_labels(labelled, firsts, trained=self._trained))

    def at_labels(self, counts: Mapping[str, int]) -> None:
        """Check the counts of labels.

        Raises:
            ConfigError: a label comes from a header, there is only one, or there are nearly as many as rows.
        """
        if not counts or not self._own_labels:
            return
        if not self._loader.several_labels:
            self._look_for_headers(counts)
            self._look_for_rows_left_out(counts)
            if not self._numbers:
                self._findings.add(labels.many_labels(counts))
            if self._learns_labels and any(self._trained.values()):
                self._findings.add(labels.one_label(counts))
                self._findings.add([] if self._numbers else labels.imbalance(counts))
        self._findings.add(labels.points_between_thousands(counts) if self._numbers else [])
        self._findings.add(labels.spellings(counts, numbers=self._numbers))
        self._findings.add(labels.written_nothings(counts))
        self._findings.add(labels.names_of_columns(counts))
        self._findings.add(labels.pieces_of_lists(counts, self._loader.parameters.label_separator))

    def _look_for_headers(self, counts: Mapping[str, int]) -> None:
        """Check for headers in files whose first row has a label that no other row has."""
        firsts = {
            split: head.rows[0][-1]
            for split, head in self._heads.items()
            if head.rows and self._sources[split].labelled
        }
        times: dict[str, int] = {}
        for label, count in counts.items():
            times[folded(label)] = times.get(folded(label), 0) + count
        for split, label in firsts.items():
            if times.get(folded(label)) == sum(folded(other) == folded(label) for other in firsts.values()):
                path, head = self._sources[split].path, self._heads[split]
                self._findings.add(raw_files.header(path, head, self._parser, labelled=True, labels=counts))

    def _look_for_rows_left_out(self, counts: Mapping[str, int]) -> None:
        """Check for files whose first row is taken for a header, although it has a label that other rows have, too."""
        known = {folded(label) for label in counts}
        for source in self._sources.values():
            if source.labelled and isinstance(self._parser, LineParser):
                self._findings.add(raw_files.first_row_left_out(source.path, self._parser, self._loader, known))
            elif source.labelled:
                self._findings.add(raw_files.first_row_as_names(source.path, self._parser, known))

    def at_marks(self, tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
        """Warn of a token such as `[E1]` that stands in texts, but that the tokenizer never finds as a whole."""
        cells = [cell for head in self._heads.values() for row in head.rows for cell in row]
        marks = (token for token in vocabulary.tokens if MARK.fullmatch(token) and not FREE.fullmatch(token))
        for mark in marks:
            if any(mark in cell for cell in cells) and tokenizer.tokenize(mark) != [mark]:
                problem = f"holds '{mark}', which texts contain, but it is read as {' '.join(tokenizer.tokenize(mark))}"
                remedy = "To read it whole, use tokenizer: auto with a tokenizer that has it as an added token."
                log.warning(f"vocab_file: {problem}. {remedy}")
                return

    def at_vocabulary(self, *, ready: bool) -> None:
        """Record whether the vocabulary was given, rather than counted in these data."""
        self._ready = ready

    def at_rows(self, split: str, keys: TextKeys | None) -> None:
        """Add the keys of rows of a split, if there are any."""
        if keys is not None:
            self._same.add(split, keys)

    def at_logits(self, split: str, logits: Ragged, target: NDArray[np.int64], names: Sequence[str]) -> None:
        """Count by which class of the teacher and of the label the rows of a split are; `names` are of the labels."""
        given = np.flatnonzero(logits.lengths == len(names))
        if len(given):
            largest = logits.take(given).values.reshape(len(given), -1).argmax(axis=1)
            found = self._teachers.setdefault(split, np.zeros((len(names), len(names)), np.int64))
            np.add.at(found, (largest, target[given]), 1)
            self._names = names

    def at_split(self, split: str, tally: Tally) -> None:
        """Check the statistics of the texts of a split, before it is committed.

        Raises:
            ConfigError: training texts have no tokens, or at least half of them are unknown to a given vocabulary.
        """
        self._tallies[split] = tally
        if split in self._teachers:
            self._findings.add(labels.teacher_order(split, self._teachers[split], self._names))
        self._findings.add(tokens.each(split, tally, trained=self._trained[split], ready=self._ready))

    def finish(self, data_dir: str, sizes: Mapping[str, int], *, dropped: bool) -> None:
        """Compare the splits, and log and write all findings.

        Args:
            data_dir: where to write them.
            sizes: number of samples of each split.
            dropped: whether duplicate rows of a file were dropped.
        """
        self.compare(dropped=dropped)
        self._findings.report()
        self._findings.write(data_dir, {split: sizes[split] for split in self._tallies})

    def compare(self, *, dropped: bool) -> None:
        """Compare the splits with one another.

        Args:
            dropped: whether duplicate rows of a file were dropped.
        """
        if not self._ready:
            self._findings.add(tokens.untrained_unknown(self._tallies, trained=self._trained))
        paths = {split: source.path for split, source in self._sources.items()}
        one_class = not self._numbers and not self._loader.several_labels and not self._loader.before
        self._findings.add(self._same.findings(self._trained, paths, dropped=dropped, classes=one_class))
