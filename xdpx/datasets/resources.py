"""Resources that all splits of a data_dir share: vocabulary, labels, word vectors, and metadata for training."""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import xdpx
from xdpx.config.args_file import ARGS_FILE, args_text
from xdpx.config.faults import ConfigError, Fault, refusal
from xdpx.config.loading import Run
from xdpx.datasets import embeddings, word_vocabulary
from xdpx.datasets.block_work import BlockWork
from xdpx.datasets.build_parameters import BuildParameters
from xdpx.datasets.counting import RawCounts
from xdpx.datasets.findings.looking import Look
from xdpx.datasets.meta import altered_keys
from xdpx.datasets.raw_data import RawFile
from xdpx.datasets.store import SUFFIXES
from xdpx.loaders.base import Loader
from xdpx.logger import log
from xdpx.tokenizers.agreement import case_conflict, word_piece_conflict
from xdpx.tokenizers.base import Tokenizer, kept_files
from xdpx.tokenizers.bert import SPECIAL_WORDS, BertTokenizer
from xdpx.tokenizers.target_map import TargetMap, by_writing
from xdpx.tokenizers.vocabulary import Vocabulary
from xdpx.utils import commit, io
from xdpx.utils.verified import RESOURCES, refuse_altered, trouble_of

NAME = RESOURCES
"""Name of the commit of all resources: they change together."""

OFTEN = 0.1
"""Share of words that have a vector only in another case from which a warning is logged."""
LITTLE_KNOWN = 0.5
"""Share of running words below which the vocabulary covers so few that a warning is logged."""

MAY_CHANGE = frozenset({"data_size", "arriving", "max_len", "dataset_format", "__version__"})
"""Keys of the metadata that may differ between splits made at different times."""


@dataclass(frozen=True)
class Resources:
    """The resources that all splits share.

    Attributes:
        vocabulary: tokens and their ids.
        target_map: labels and their classes; None if no split is labelled.
        files: {name: content} of further text files that the tokenizer needs.
        vectors: word vectors of `words`, or else of `vocabulary`; None if not configured.
        lines: number of lines by path of raw file, for the files that were counted.
        words: vocabulary of whole words, for loaders that have them.
    """

    vocabulary: Vocabulary
    target_map: TargetMap | None
    files: Mapping[str, str] = field(default_factory=dict)
    vectors: embeddings.WordVectors | None = None
    lines: Mapping[str, int] = field(default_factory=dict)
    words: Vocabulary | None = None

    @property
    def digests(self) -> dict[str, str]:
        """Digest of each vocabulary and target map, by file name; equal for all splits of a data_dir."""
        digests = {"vocab.txt": self.vocabulary.digest}
        if self.target_map is not None:
            digests["target_map.txt"] = self.target_map.digest
        return digests if self.words is None else {**digests, word_vocabulary.FILE: self.words.digest}

    @property
    def lists(self) -> dict[str, str]:
        """Content of the vocabulary and target map files, by file name."""
        found = {"vocab.txt": self.vocabulary, word_vocabulary.FILE: self.words, "target_map.txt": self.target_map}
        return {name: each.text for name, each in found.items() if each is not None}

    def write(self, run: Run, data_dir: str, meta: Mapping[str, Any]) -> None:
        """Commit the files of all resources and the args file; the manifest has their digests and the metadata."""
        facts = {**self.digests, "meta": {key: value for key, value in meta.items() if key not in MAY_CHANGE}}
        with commit.Commit(data_dir, NAME, facts=facts) as files:
            texts = {ARGS_FILE: args_text(run), **self.lists, **self.files}
            for name, text in texts.items():
                with files.open(name, "w", private=name == ARGS_FILE) as file:
                    file.write(text)
            if self.vectors is not None:
                with files.open("embeddings.pt") as file:
                    file.write(embeddings.write_tensor(self.vectors.matrix))


def gather(  # noqa: PLR0913 - the inputs of all resources
    parameters: BuildParameters,
    files: Mapping[str, RawFile],
    loader: Loader,
    tokenizer: Tokenizer,
    words: Words,
    *,
    of_processor: object,
    look: Look,
    work: BlockWork,
    with_vectors: bool = True,
) -> Resources:
    """Return the resources: read from the configured files, or else built from the raw files.

    Labels are counted in all labelled splits, words in those of `vocab_subset`.

    Args:
        parameters: of the build.
        files: raw files by split.
        loader: the configured loader.
        tokenizer: the configured tokenizer.
        words: the special words.
        of_processor: parameters of the processor.
        look: checks the labels.
        work: counts tokens and labels of the raw files.
        with_vectors: whether to read word vectors, if configured.

    Raises:
        ConfigError: a configured file is not valid, or the raw files yield no valid vocabulary or target map.
    """
    vocabulary = _given_vocabulary(parameters, tokenizer, words)
    if vocabulary is not None and parameters.vocab_file is not None and tokenizer.obeys_lower:
        _check_case(parameters.vocab_file, vocabulary, lower=tokenizer.parameters.lower)
        if isinstance(tokenizer, BertTokenizer):
            _check_rules(parameters.vocab_file, lower=tokenizer.parameters.lower)
    labelled = [file.path for file in files.values() if file.labelled]
    worded = worded_splits(parameters.vocab_subset, files)
    of_words = {files[split].path for split in worded}
    look.at_vocabulary(ready=vocabulary is not None)
    seen = RawCounts()
    if vocabulary is None or (labelled and parameters.target_map_file is None):
        counted = tokenizer if vocabulary is None else None
        skip = loader.parameters.skip_bad_lines
        workers = parameters.workers
        seen = work.count(files.values(), loader, counted, workers=workers, skip_bad_lines=skip, of_words=of_words)
        look.at_labels(seen.labels)
    if vocabulary is None:
        vocabulary = _counted_vocabulary(parameters, seen, words, "" if len(worded) == len(files) else worded[0])
    target_map = _target_map(parameters, seen, labelled)
    whole = word_vocabulary.gather_words(
        of_processor, list(files.values()), loader, work=work, workers=parameters.workers, of_words=of_words
    )
    vectors = _vectors(parameters, whole or vocabulary, words) if with_vectors else None
    return Resources(vocabulary, target_map, kept_files(tokenizer), vectors, dict(seen.lines), whole)


def worded_splits(wanted: str | Sequence[str], splits: Iterable[str]) -> list[str]:
    """Return the splits whose words make the vocabulary: those that match a pattern, or all if none does."""
    patterns = [wanted] if isinstance(wanted, str) else wanted
    there = list(splits)
    return [split for split in there if any(fnmatch.fnmatchcase(split, each) for each in patterns)] or there


@dataclass(frozen=True)
class Words:
    """The special words of a vocabulary.

    Attributes:
        pad: the padding word.
        unk: the unknown word.
        others: further ones.
    """

    pad: str
    unk: str
    others: tuple[str, ...] = ()

    @property
    def special(self) -> tuple[str, ...]:
        """All special words, in the order of a vocabulary."""
        return (self.pad, self.unk, *self.others)


def _given_vocabulary(parameters: BuildParameters, tokenizer: Tokenizer, words: Words) -> Vocabulary | None:
    if tokenizer.needs_vocabulary:
        own = tokenizer.vocabulary(pad_word=words.pad, unk_word=words.unk)
        if own is not None:
            _refuse_doubles(own)
        return own
    if parameters.vocab_file is None:
        return None
    vocabulary = Vocabulary.read(parameters.vocab_file, pad_word=words.pad, unk_word=words.unk)
    _refuse_doubles(vocabulary)
    missing = [
        (key, word) for key, word in (("pad_word", words.pad), ("unk_word", words.unk)) if word not in vocabulary
    ]
    if missing:
        faults = [Fault(key, f"'{word}' is not in the vocabulary.", "Name a word that is.") for key, word in missing]
        raise ConfigError(parameters.vocab_file, faults)
    return vocabulary


def _check_case(vocab_file: str, vocabulary: Vocabulary, *, lower: bool) -> None:
    """Raise ConfigError if `lower` certainly contradicts the case of the vocabulary; warn if it probably does."""
    problem, certain = case_conflict(vocab_file, vocabulary.tokens, lower=lower) or ("", False)
    if certain:
        raise refusal("lower", problem)
    if problem:
        log.warning(f"lower {problem}")


def _check_rules(vocab_file: str, *, lower: bool) -> None:
    """Raise ConfigError if the model of a vocabulary splits texts by other rules than BERT's."""
    other = word_piece_conflict(vocab_file, lower=lower, special=SPECIAL_WORDS)
    if other is not None:
        problem = f"is 'bert', but by its tokenizer_config.json the model of {vocab_file} {other}."
        raise refusal("tokenizer", problem, f"Use tokenizer: auto with vocab_file: {io.parent(vocab_file)}.")


def _refuse_doubles(vocabulary: Vocabulary) -> None:
    """Raise ConfigError if a token has two ids: it is unknown which of them weights were trained with."""
    doubles = vocabulary.doubles()
    if doubles:
        lines = [index for index, token in enumerate(vocabulary.tokens, 1) if token == doubles[0]]
        others = f", and {len(set(doubles)) - 1} more" if len(set(doubles)) > 1 else ""
        problem = f"holds '{doubles[0]}' in lines {' and '.join(map(str, lines[:2]))}{others}."
        raise refusal("vocab_file", problem, "Keep each token once.")


def _counted_vocabulary(parameters: BuildParameters, seen: RawCounts, words: Words, of_split: str) -> Vocabulary:
    always: set[str] = set()
    if parameters.pretrained_embeddings and parameters.threshold > 0 and parameters.ignore_in_emb:
        always = embeddings.words_with_vector(parameters.pretrained_embeddings, seen.tokens)
    vocabulary = Vocabulary.build(
        seen.tokens,
        special_words=words.special,
        threshold=parameters.threshold,
        max_size=parameters.nwords,
        always=always,
    )
    total = sum(seen.tokens.values())
    covered = sum(count for word, count in seen.tokens.items() if word in vocabulary)
    share = covered / total if total else 1.0
    if share < LITTLE_KNOWN and total:
        log.warning(
            f"{1 - share:.1%} of {total:,} words are not in the vocabulary and become '{words.unk}'. "
            f"Lower threshold (now {parameters.threshold}), or raise nwords (now {parameters.nwords}; -1: no limit)."
        )
    log.info(
        f"Vocabulary: {len(vocabulary):,} tokens, from {len(seen.tokens):,} different words; "
        f"it covers {share:.2%} of the {total:,} words{f' of {of_split}' if of_split else ''}"
    )
    return vocabulary


def _target_map(parameters: BuildParameters, seen: RawCounts, labelled: list[str]) -> TargetMap | None:
    if parameters.target_map_file is not None:
        return _given_labels(parameters.target_map_file)
    source = ", ".join(labelled[:3]) + (", ..." if len(labelled) > 3 else "")
    written = by_writing(seen.labels)
    labels = {label: sum(writings.values()) for label, writings in written.items()}
    if labelled and parameters.target_type == "index":
        return TargetMap.by_number(labels, source=source)
    if labelled and parameters.target_type == "number":
        return TargetMap.by_value(labels, source=source)
    if labelled:
        return TargetMap.by_frequency(labels, parameters.special_targets, source=source)
    if parameters.special_targets:
        fault = Fault("special_targets", "no file carries labels.", "Remove it, or check the columns of the files.")
        raise ConfigError(parameters.data_source, [fault])
    return None


def _given_labels(path: str) -> TargetMap:
    """Return the labels of a file; raise ConfigError for a blank line, which would be a class without any row."""
    found = TargetMap.read(path)
    if "" in found.labels:
        problem = f"line {found.labels.index('') + 1} is blank, and would become a class."
        raise ConfigError(path, [Fault("target_map_file", problem, "Remove it.")])
    return found


def _vectors(parameters: BuildParameters, vocabulary: Vocabulary, words: Words) -> embeddings.WordVectors | None:
    path = parameters.pretrained_embeddings
    if path is None:
        return None
    log.info(f"Reading word vectors from {path}")
    vectors = embeddings.read_vectors(path, vocabulary, seed=parameters.seed, special_words=words.special)
    log.info(
        f"Word vectors: {vectors.num_found:,} of {len(vocabulary):,} words have a vector "
        f"({vectors.num_found / len(vocabulary):.1%}); {vectors.matrix.shape[1]} numbers each"
    )
    _tell_of_few_vectors(vectors, len(vocabulary), path)
    return vectors


def _tell_of_few_vectors(vectors: embeddings.WordVectors, size: int, path: str) -> None:
    """Warn if most words of a vocabulary have a random vector, or many only because of their case."""
    others = vectors.num_in_other_case
    if others > OFTEN * size:
        problem = f"{others:,} of {size:,} words have a vector in {path} only in another case, and begin at random"
        log.warning(f"{problem}. Use vectors of texts in the case of yours, or set lower as theirs.")
    elif vectors.num_found < LITTLE_KNOWN * size:
        problem = f"only {vectors.num_found:,} of {size:,} words have a vector in {path}; the others begin at random"
        log.warning(f"{problem}. Are they of this language, and of words as this tokenizer splits them?")


def make_meta(
    processor_name: str, processor_meta: Mapping[str, Any], resources: Resources, *, suffix: str
) -> dict[str, Any]:
    """Return the metadata that training inherits; `data_size` is added as splits are finished."""
    meta: dict[str, Any] = {"__version__": xdpx.__version__, "processor": processor_name, **processor_meta}
    meta["vocab_size"] = len(resources.vocabulary)
    if resources.words is not None:
        meta["word_vocab_size"] = len(resources.words)
    if resources.target_map is not None:
        meta["num_classes"] = len(resources.target_map)
    if suffix == SUFFIXES["jsonl"]:
        meta["dataset_format"] = "jsonl"
    if resources.vectors is not None:
        meta["embedding_dim"] = int(resources.vectors.matrix.shape[1])
    return meta


def keep_labels(resources: Resources, data_dir: str, old: Mapping[str, Any]) -> Resources:
    """Return the resources with the existing labels of the data_dir, if it has splits and the new ones are unlabelled.

    Raises:
        ConfigError: the existing resources were altered.
    """
    path = io.join(data_dir, "target_map.txt")
    if resources.target_map is not None or not old.get("data_size") or not io.isfile(path):
        return resources
    refuse_altered(data_dir, advice="Copy it again from its source.", but=(ARGS_FILE,))
    return replace(resources, target_map=TargetMap.read(path))


def refuse_changes(data_dir: str, old: Mapping[str, Any], new: Mapping[str, Any], resources: Resources) -> None:
    """Check that new splits are consistent with the existing ones of the data_dir.

    Raises:
        ConfigError: the metadata, the tokens or the labels have changed.
    """
    if not old.get("data_size"):
        return
    faults = []
    altered = {fault.key for fault in altered_keys(data_dir, old)}
    noted = {key: value for key, value in new.items() if key not in MAY_CHANGE}
    mends = bool(altered) and not altered_keys(data_dir, noted)
    for key in sorted({*old, *new} - MAY_CHANGE - (altered if mends else set())):
        if old.get(key) != new.get(key):
            faults.append(Fault(key, f"was {_shown(old, key)}, is now {_shown(new, key)}.", ""))
    faults += _changed_lists(data_dir, resources)
    if faults:
        there = ", ".join(old["data_size"])
        remedy = (
            f"Metadata have changed, but {data_dir} contains earlier splits ({there}). Use another data_dir, remove "
            f"this one, or reuse its vocabulary: vocab_file: {io.join(data_dir, 'vocab.txt')}"
        )
        if resources.target_map is not None:
            remedy += f", target_map_file: {io.join(data_dir, 'target_map.txt')}"
        faults[-1] = Fault(faults[-1].key, faults[-1].problem, f"{remedy}.")
        raise ConfigError(data_dir, faults)


def _changed_lists(data_dir: str, resources: Resources) -> list[Fault]:
    """Return faults for vocabularies and labels that differ from the existing files."""
    faults = []
    manifest = commit.read_manifest(data_dir, NAME)
    promised = manifest.facts if manifest is not None else {}
    for name, text in resources.lists.items():
        path = io.join(data_dir, name)
        if io.isfile(path) and trouble_of(path, NAME) and promised.get(name) == _digest(text):
            log.warning(f"{path} was damaged and is rewritten.")
            continue
        before = _lines(path) if io.isfile(path) else []
        after = text.split("\n")[:-1]
        if before != after:
            parts = [_some("new", set(after) - set(before)), _some("gone", set(before) - set(after))]
            what = "; ".join(part for part in parts if part) or "another order"
            faults.append(Fault(name, f"would differ from that of the other splits ({what}).", ""))
    return faults


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _lines(path: str) -> list[str]:
    with io.open(path, newline="", errors="replace") as file:
        return str(file.read()).split("\n")[:-1]


def _some(what: str, names: set[str]) -> str:
    shown = ", ".join(f"{name!r:.40}" for name in sorted(names)[:3])
    return f"{what}: {shown}{f' and {len(names) - 3:,} more' if len(names) > 3 else ''}" if names else ""


def _shown(meta: Mapping[str, Any], key: str) -> str:
    return repr(meta[key]) if key in meta else "not there"
