"""Make samples of one block of a raw file: the task of a worker, in preprocessing and in prediction."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import nearest
from xdpx.config.registry import are_shipped
from xdpx.datasets.answer_places import placed
from xdpx.datasets.findings.same_texts import TextKeys, keys_of
from xdpx.loaders import marks
from xdpx.loaders.base import Loader, Records
from xdpx.loaders.parsers.base import BadLine, Block, Parser, Row, Rows
from xdpx.processors.base import Processor, samples_of
from xdpx.processors.samples import Ragged, Samples, offsets_of
from xdpx.tokenizers.encoder import Encoded, Encoder
from xdpx.tokenizers.target_map import UNKNOWN, TargetMap, folded, number_of
from xdpx.utils.seeds import seeded


@dataclass(frozen=True)
class Recipe:
    """All objects needed to make samples of a block of a raw file.

    Attributes:
        parser, loader, encoder, processor: as configured.
        target_map: classes of the labels; None if there are none.
        target_unk: label to use for labels that the map lacks; None makes their lines bad.
        label_remedy: advice in the message about such a line.
        numbers: whether labels can only be numbers.
        words: converts the words of texts to ids, for a loader that has words.
    """

    parser: Parser
    loader: Loader
    encoder: Encoder
    processor: Processor
    target_map: TargetMap | None = None
    target_unk: str | None = None
    label_remedy: str = "add it to target_map_file, or name a target_unk"
    numbers: bool = False
    words: Encoder | None = None

    @property
    def merges(self) -> bool:
        """Whether the loader joins records into blocks, which must be done in file order."""
        return self.loader.merger(1) is not None

    def encode(self, field: str, texts: Sequence[str]) -> Encoded:
        """Return the token ids of many texts, with the marks that the loader provides and the processor reads."""
        wanted = self.processor.reads_marks
        if self.loader.marks_words and wanted & marks.WORD_START:
            encoded = _word_by_word(self.encoder, texts, keep_all=self.loader.keeps_words)
        else:
            encoded = self.encoder.encode_many(texts)
        if self.merges and wanted & marks.SENTENCE_START:
            values = marks.put(marks.SENTENCE_START, encoded.values, encoded.offsets)
            encoded = Encoded(values, encoded.offsets)
        return encoded


class Work(NamedTuple):
    """A block of a raw file to make samples of.

    Attributes:
        block: the lines.
        labelled: whether they have a label.
        hashed: whether to compute hashes of records.
        keep_rows: whether to return the unprocessed rows.
        keyed: whether to compute keys of texts.
    """

    block: Block
    labelled: bool
    hashed: bool = False
    keep_rows: bool = False
    keyed: bool = False


@dataclass
class Counts:
    """Counts of a raw file or of some of its blocks.

    Attributes:
        lines: number of lines, good and bad.
        bytes: of the lines, decompressed; 0 for formats that are not read line by line.
        samples: number of samples, without duplicates.
        duplicates: number of samples or texts dropped as duplicates.
        too_long, too_short: number of records longer than max_len, and of records that became no sample.
        cut: tokens beyond max_len.
        empty: records with a text of no token.
        windows: samples that continue a text too long for one.
        moved: answers that are not where the file says they begin.
        longest: tokens of the longest record before truncation, special tokens included.
        tokens, unknown: number of token ids, and how many of them are the unknown token.
        texts, characters: number of texts, and of their characters.
        bad: the first lines that could not be used; `num_bad` counts all.
        novel: labels that the target map lacks and `target_unk` stands in for, and how often each occurs.
    """

    lines: int = 0
    bytes: int = 0
    samples: int = 0
    duplicates: int = 0
    too_long: int = 0
    too_short: int = 0
    cut: int = 0
    empty: int = 0
    windows: int = 0
    moved: int = 0
    longest: int = 0
    tokens: int = 0
    unknown: int = 0
    texts: int = 0
    characters: int = 0
    bad: list[BadLine] = field(default_factory=list)
    num_bad: int = 0
    novel: Counter[str] = field(default_factory=Counter)

    def add(self, other: Counts) -> None:
        """Add the counts of another part of the file. Only the first few bad lines are kept."""
        for name in (
            "lines",
            "bytes",
            "samples",
            "duplicates",
            "too_long",
            "too_short",
            "cut",
            "empty",
            "windows",
            "moved",
            "tokens",
            "unknown",
            "texts",
            "characters",
            "num_bad",
        ):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.longest = max(self.longest, other.longest)
        self.novel.update(other.novel)
        self.bad = [*self.bad, *other.bad][:SHOWN_BAD_LINES]


SHOWN_BAD_LINES = 5


class Made(NamedTuple):
    """The samples made of a block.

    Attributes:
        samples: finished samples; None for a loader that merges.
        kept: index of each sample's row in the block.
        encoded: token ids of each text, for a loader that merges.
        borders: which texts are blank and separate documents, for a loader that merges.
        hashes: 16 bytes per sample or text as two uint64, (N, 2); None unless `Work.hashed`.
        counts: of the block.
        rows: the unprocessed columns; empty unless `Work.keep_rows`, and for a loader that merges.
        keys: of the records, to find equal texts; None unless `Work.keyed`.
        lines: 1-based line where each row begins; empty where `rows` is.
    """

    samples: Samples | None
    kept: NDArray[np.int64]
    encoded: Encoded | None
    borders: NDArray[np.bool_] | None
    hashes: NDArray[np.uint64] | None
    counts: Counts
    rows: list[Row]
    keys: TextKeys | None = None
    lines: Sequence[int] = ()


def same_every_time(block: Block, *parts: object) -> AbstractContextManager[None]:
    """Return a context in which the random numbers that code of a user draws depend only on the block."""
    return nullcontext() if are_shipped(*parts) else seeded(block.first_line)


class Maker:
    """The task of a worker: makes samples of one block of a raw file."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe

    def __call__(self, work: Work) -> Made:
        """Parse and tokenize the block, and return its samples; what code of a user draws depends only on the block."""
        recipe = self._recipe
        with same_every_time(work.block, recipe.parser, recipe.loader, recipe.encoder.tokenizer, recipe.processor):
            return self._made(work)

    def _made(self, work: Work) -> Made:
        recipe = self._recipe
        rows = recipe.parser.parse(work.block)
        records = recipe.loader.records(rows, labelled=work.labelled)
        records = self._with_fitting_logits(records)
        records, targets, sets = self._classes(records)
        encoded = {name: recipe.encode(name, texts) for name, texts in records.fields.items()}
        counts = _count(records, encoded, recipe.encoder.vocabulary.unk)
        counts.bytes = len(work.block.data)
        counts.novel = self._novel(records)
        hashes = hash_records(records) if work.hashed else None
        keys = keys_of(records) if work.keyed else None
        if recipe.merges:
            texts, values = next(iter(records.fields.values())), next(iter(encoded.values()))
            borders = np.fromiter((not text.strip() for text in texts), np.bool_, len(texts))
            return Made(None, np.arange(0), values, borders, hashes, counts, [])
        more = {} if recipe.words is None else _words_of(recipe.words, recipe.processor, records)
        if records.answers is not None:
            name, texts = list(records.fields.items())[-1]
            lengths = np.diff(encoded[name].offsets)
            more |= placed(texts, records.answers, lengths, recipe.encoder.tokenizer)
            counts.moved = sum(answer.moved for answer in records.answers)
        samples, kept = numerize(recipe.processor, encoded, targets, logits=records.logits, more=more)
        if sets is not None:  # the target of a sample is the index of its set of labels so far
            samples = recipe.processor.with_label_sets(samples, sets)
        if records.queries is not None:
            samples = samples.replaced("query_id", query_ids(records.queries)[kept])
        measure(counts, recipe.processor, encoded)
        num_texts = len(np.unique(kept))
        counts.too_short = len(records.lines) - num_texts
        counts.windows = len(kept) - num_texts
        counts.samples = len(kept)
        hashes = _hashes_of_samples(hashes, kept) if hashes is not None else None
        places = _positions(rows, records)[kept]
        kept_rows, lines = (rows.rows, rows.lines) if work.keep_rows else ([], ())
        return Made(samples, places, None, None, hashes, counts, kept_rows, keys, lines)

    def _with_fitting_logits(self, records: Records) -> Records:
        """Return the records without those whose teacher logits are for another number of classes, which are bad."""
        target_map = self._recipe.target_map
        if records.logits is None or target_map is None:
            return records
        fits = [len(logits) in {0, len(target_map)} for logits in records.logits]
        bad = [
            BadLine(line, f"has {len(logits)} logits for {len(target_map)} labels")
            for line, logits, fit in zip(records.lines, records.logits, fits, strict=True)
            if not fit
        ]
        return _take(records, np.flatnonzero(fits).tolist(), bad) if bad else records

    def _classes(self, records: Records) -> tuple[Records, NDArray[np.int64] | None, Ragged | None]:
        """Return (records, class of each or index of its set of classes, the sets if any); unknown labels are bad."""
        if not self._recipe.loader.several_labels:
            return *self._single_classes(records), None
        target_map = self._recipe.target_map
        if records.targets is None or target_map is None:
            return records, None, None
        labels = [self._recipe.loader.labels_of(target) for target in records.targets]
        offsets = offsets_of(np.fromiter(map(len, labels), np.int64, len(labels)))
        lines = np.repeat(records.lines, np.diff(offsets)).tolist()
        flat = Records({}, [label for each in labels for label in each], lines, [])
        known, classes = self._single_classes(flat)
        if not known.bad:
            return records, np.arange(len(labels)), Ragged(np.asarray(classes, np.int32), offsets)
        faulty = {line for line, _ in known.bad}
        kept = [index for index, line in enumerate(records.lines) if line not in faulty]
        return self._classes(_take(records, kept, known.bad))

    def _single_classes(self, records: Records) -> tuple[Records, NDArray[np.int64] | None]:
        """Return (records, class of each); records with an unknown label are bad."""
        target_map = self._recipe.target_map
        if records.targets is None or target_map is None:
            return records, None
        fallback = UNKNOWN if self._recipe.target_unk is None else target_map.find(self._recipe.target_unk)
        classes = target_map.classes(records.targets, unknown=UNKNOWN if fallback is None else fallback)
        if not len(classes) or classes.min() >= 0:
            return records, classes
        bad = [
            BadLine(records.lines[index], self._unknown_label(records.targets[index], target_map))
            for index in np.flatnonzero(classes < 0).tolist()
        ]
        kept = np.flatnonzero(classes >= 0)
        return _take(records, kept.tolist(), bad), classes[kept]

    def _novel(self, records: Records) -> Counter[str]:
        """Return how often each label occurs that the map lacks and that `target_unk` stands in for."""
        recipe = self._recipe
        if recipe.target_unk is None or recipe.target_map is None or records.targets is None:
            return Counter()
        labels = Counter(label for target in records.targets for label in recipe.loader.labels_of(target))
        return Counter({label: times for label, times in labels.items() if label not in recipe.target_map})

    def _unknown_label(self, label: str, target_map: TargetMap) -> str:
        if self._recipe.numbers and number_of(label) is None:
            return f"is labelled '{label}', which is not a number"
        near = nearest(label, target_map.labels)
        listed = ", ".join(target_map.labels[:5]) + (", ..." if len(target_map) > 5 else "")
        hint = f"did you mean '{near}'?" if near else f"the labels are {listed}."
        remedy = self._recipe.label_remedy
        return f"is labelled '{label}', which the target map lacks; {hint} Else {remedy}"


def _word_by_word(encoder: Encoder, texts: Sequence[str], *, keep_all: bool) -> Encoded:
    """Return the token ids of each text, its words encoded separately with a mark on the first token of each.

    With `keep_all`, a word without tokens becomes an unknown token.
    """
    words = [text.split() for text in texts]
    if encoder.tokenizer.space_before_words:
        words = [[*row[:1], *(f" {word}" for word in row[1:])] for row in words]
    of_words = encoder.encode_many(list(chain.from_iterable(words)))
    lost = np.flatnonzero(np.diff(of_words.offsets) == 0)
    if keep_all and len(lost):
        values = np.insert(of_words.values, of_words.offsets[lost], encoder.vocabulary.unk or 0)
        offsets = of_words.offsets + np.searchsorted(lost, np.arange(len(of_words.offsets)))
        of_words = Encoded(values, offsets)
    ends = np.cumsum([0, *map(len, words)])
    return Encoded(marks.put(marks.WORD_START, of_words.values, of_words.offsets), of_words.offsets[ends])


def _words_of(encoder: Encoder, processor: Processor, records: Records) -> dict[str, Ragged]:
    """Return the word ids of each text, by the name of its tokens with `words` in place of `tokens`."""
    return {
        name.replace("tokens", "words"): Ragged(*encoder.encode_many(texts))
        for name, texts in zip(processor.text_fields, records.fields.values(), strict=True)
    }


def numerize(
    processor: Processor,
    encoded: dict[str, Encoded],
    targets: NDArray[np.int64] | None,
    *,
    logits: list[list[float]] | None = None,
    more: Mapping[str, Ragged] | None = None,
) -> tuple[Samples, NDArray[np.int64]]:
    """Return (samples of encoded records, index of the record that each came from); `more` are further fields."""
    fields = {name: Ragged(*rows) for name, rows in zip(processor.text_fields, encoded.values(), strict=True)}
    fields |= more or {}
    if logits is not None:
        offsets = offsets_of(np.fromiter(map(len, logits), np.int64, len(logits)))
        fields["logits"] = Ragged(np.fromiter(chain.from_iterable(logits), np.float32, offsets[-1]), offsets)
    return samples_of(processor, fields, targets, schema_of(processor, labelled=targets is not None))


def schema_of(processor: Processor, *, labelled: bool, several: bool = False, queries: bool = False) -> dict[str, str]:
    """Return the columns of a processor's samples; `target` is a class, or with `several` a row of classes.

    Processors handle neither sets of labels nor queries: both columns are added to their schema here.
    """
    schema = processor.columns(labelled=labelled)
    schema |= {"target": "ragged int32"} if "target" in schema and several else {}
    return schema | ({"query_id": "int64"} if queries else {})


def query_ids(names: Sequence[str]) -> NDArray[np.int64]:
    """Return an id for each query name, equal in every file: 63 bits of its BLAKE2b hash, (N,)."""
    digests = b"".join(hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names)
    return np.frombuffer(digests, np.int64) & np.int64(2**63 - 1)


def measure(counts: Counts, processor: Processor, encoded: dict[str, Encoded]) -> None:
    """Add to `counts` the records that are too long or empty, and the longest, before truncation."""
    lengths = np.stack([np.diff(texts.offsets) for texts in encoded.values()], axis=1)
    if not len(lengths):
        return
    distinct, times = np.unique(lengths, axis=0, return_counts=True)
    for row, count in zip(distinct.tolist(), times.tolist(), strict=True):
        fields = dict(zip(processor.text_fields, map(range, row), strict=True))
        length = processor.full_length(fields)
        counts.longest = max(counts.longest, length)
        counts.too_long += count * (length > processor.parameters.max_len)
        counts.cut += count * max(length - processor.parameters.max_len, 0)
        counts.empty += count * processor.lacks_text(fields)


def hash_records(records: Records) -> NDArray[np.uint64]:
    """Return a 16-byte hash of the texts, label, query and answers of each record, (N, 2)."""
    labels = None if records.targets is None else [folded(target) for target in records.targets]
    answers = None if records.answers is None else [f"{each.begin}\n{each.right}" for each in records.answers]
    columns = [*records.fields.values(), *(each for each in (labels, records.queries, answers) if each is not None)]
    joined = ("\x1f".join(record).encode() for record in zip(*columns, strict=True))
    digests = b"".join(hashlib.blake2b(text, digest_size=16).digest() for text in joined)
    return np.frombuffer(digests, np.uint64).reshape(-1, 2)


def _hashes_of_samples(hashes: NDArray[np.uint64], kept: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the hash of each sample, (N, 2): its record's hash plus the index of the sample in the record."""
    found = hashes[kept]
    found[:, 0] += (np.arange(len(kept)) - np.searchsorted(kept, kept)).astype(np.uint64)
    return found


def _count(records: Records, encoded: dict[str, Encoded], unknown: int | None) -> Counts:
    counts = Counts(lines=len(records.lines) + len(records.bad), bad=list(records.bad), num_bad=len(records.bad))
    counts.tokens = sum(len(texts.values) for texts in encoded.values())
    counts.texts = sum(map(len, records.fields.values()))
    counts.characters = sum(sum(map(len, texts)) for texts in records.fields.values())
    if unknown is not None:
        counts.unknown = sum(int(np.count_nonzero(marks.plain(texts.values) == unknown)) for texts in encoded.values())
    return counts


def _positions(rows: Rows, records: Records) -> NDArray[np.int64]:
    """Return the index of each record's row, (N,), found by the line where both begin."""
    if len(rows.rows) == len(records.lines):
        return np.arange(len(rows.rows))
    return np.searchsorted(np.asarray(rows.lines), np.asarray(records.lines))


def _take(records: Records, kept: list[int], bad: list[BadLine]) -> Records:
    fields = {name: [texts[index] for index in kept] for name, texts in records.fields.items()}
    targets = [records.targets[index] for index in kept] if records.targets is not None else None
    logits = [records.logits[index] for index in kept] if records.logits is not None else None
    queries = [records.queries[index] for index in kept] if records.queries is not None else None
    answers = [records.answers[index] for index in kept] if records.answers is not None else None
    lines = [records.lines[index] for index in kept]
    return Records(fields, targets, lines, sorted([*records.bad, *bad]), logits, queries, answers)
