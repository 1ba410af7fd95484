"""Build a data_dir from raw files: resources first, then one split after the other, each committed atomically.

If a build is interrupted at any time, every split is either the old or the new one, and the same command finishes the
work: splits that the interrupted run had finished are kept.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from xdpx.config.args_file import ARGS_FILE
from xdpx.config.faults import ConfigError, Fault, first_few
from xdpx.config.loading import Run, fingerprint
from xdpx.config.stored_args import read_prepro_args
from xdpx.datasets import build_report, resources
from xdpx.datasets.block_work import BlockWork
from xdpx.datasets.build_parameters import BuildParameters
from xdpx.datasets.data_files import splits
from xdpx.datasets.examining.closely import at_the_beginning
from xdpx.datasets.findings.finding import Findings
from xdpx.datasets.findings.looking import Look, SplitFile
from xdpx.datasets.findings.tokens import Tally
from xdpx.datasets.making import Making, MakingStatus
from xdpx.datasets.meta import read_meta, write_meta
from xdpx.datasets.raw_data import Joiner, RawFile, identity
from xdpx.datasets.resources import Resources, Words
from xdpx.datasets.sample_making import Counts, Made, Maker, Recipe, schema_of
from xdpx.datasets.store import SUFFIXES
from xdpx.datasets.word_vocabulary import word_encoder
from xdpx.datasets.workers import Crew
from xdpx.datasets.writing import PartWriter, assemble
from xdpx.logger import EarlyLines, ProgressBar, log
from xdpx.processors.samples import Ragged, Samples
from xdpx.tokenizers.agreement import other_words
from xdpx.tokenizers.base import kept_files
from xdpx.tokenizers.encoder import Encoder
from xdpx.tokenizers.target_map import number_of
from xdpx.utils import commit, io

PARTS = ".parts"
"""Folder in data_dir (for a remote one, in the read cache) for files of unfinished splits."""

LONGEST_REASON = 300


def build(run: Run, work: BlockWork | None = None) -> dict[str, int]:
    """Build the data_dir of a run of x-prepro.

    Args:
        run: of x-prepro.
        work: how blocks of raw files are processed; in this process by default.

    Returns:
        {split: number of samples} of the whole data_dir.

    Raises:
        ConfigError: the raw files or the existing data_dir do not fit the config.
        OSError: the disk, the network, or a worker process failed.
    """
    parameters: BuildParameters = run.parameters("command")
    data_dir = parameters.data_dir
    with commit.Lease(data_dir), log.early() as early:
        commit.sweep(data_dir)
        _remove_parts(data_dir)
        builder = Builder(run, parameters, early, work or BlockWork())
        builder.look()
        builder.prepare()
        try:
            for split, file in builder.files.items():
                builder.build_split(split, file)
            return builder.finish()
        except BaseException as error:
            builder.give_up(error)
            raise


ANEW = "use another data_dir"


class Builder:
    """The steps of one build. No file in data_dir changes before a split is ready to be committed.

    Args:
        run: of x-prepro.
        parameters: of the command.
        early: keeps the log lines until the log file is opened.
        work: how blocks of raw files are processed.
        findings: collects suspicious findings about the data; by default, certain errors raise ConfigError.
    """

    def __init__(
        self,
        run: Run,
        parameters: BuildParameters,
        early: EarlyLines,
        work: BlockWork,
        findings: Findings | None = None,
    ) -> None:
        self._run = run
        self._findings = findings or Findings(parameters.data_source, parameters.ignore_findings)
        self._early = early
        self.work = work
        self._begun = False
        self._kept: list[str] = []  # splits that an interrupted build had finished
        self._parameters = parameters
        self._data_dir = parameters.data_dir
        self._fingerprint = fingerprint(run)
        self._loader = run.build("loader")
        self._parser = run.build("parser")
        self._tokenizer = run.build("tokenizer")
        self._suffix = SUFFIXES[parameters.save_format]
        self._meta: dict[str, Any] = {}
        self._last = ""
        self.files: dict[str, RawFile] = {}

    def look(self) -> None:
        """Find the raw files, and examine their first rows."""
        skip = self._loader.parameters.skip_bad_lines
        paths = splits(self._parameters.data_source, self._parameters.data_files)
        known = {split: identity(path) for split, path in paths.items()}
        self.files = {
            split: replace(RawFile.survey(path, self._parser, self._loader, skip_bad_lines=skip), identity=known[split])
            for split, path in paths.items()
        }
        self.looking = self._first_look()

    def prepare(self, *, with_vectors: bool = True) -> None:
        """Make the resources (vocabulary, labels, ...), and check that they fit existing splits.

        Args:
            with_vectors: whether to read word vectors. Samples do not depend on them, but without them the metadata
                cannot be compared with existing splits.
        """
        old = read_meta(self._data_dir)
        found = resources.gather(
            self._parameters, self.files, self._loader, self._tokenizer, self._words(),
            of_processor=self._run.parameters("processor"), look=self.looking, work=self.work,
            with_vectors=with_vectors,
        )  # fmt: skip
        self.looking.at_marks(self._tokenizer, found.vocabulary)
        self._resources = found = resources.keep_labels(found, self._data_dir, old)
        self._processor = self._run.build("processor", vocabulary=found.vocabulary)
        self._tell_of_separators()
        name, inherited = self._run.values["processor"], self._processor.meta()
        self._meta = resources.make_meta(name, inherited, found, suffix=self._suffix)
        if self._parameters.target_type == "number" and found.target_map is not None:
            self._meta["label_values"] = [number_of(label) for label in found.target_map.labels]
        self._meta |= self._loader.meta(found.target_map.labels if found.target_map is not None else ())
        if with_vectors or self._parameters.pretrained_embeddings is None:
            resources.refuse_changes(self._data_dir, old, self._meta, found)
            self._refuse_other_words(old)
            self._refuse_other_tokens(old)
        self._start_from(old)
        self._recipe = self._make_recipe(found)
        self._labels = build_report.LabelCounts(found.target_map, numbers=self._parameters.target_type == "number")
        self._crew = Crew(Maker(self._recipe), workers=self._parameters.workers)

    def _refuse_other_words(self, old: Mapping[str, Any]) -> None:
        """Raise ConfigError if words of earlier splits were encoded with the space before them, and now are not."""
        path, key = io.join(self._data_dir, ARGS_FILE), "space_before_words"
        if not (old.get("data_size") and self._loader.marks_words and io.isfile(path)):
            return
        before, now = bool(read_prepro_args(path)[key]), bool(self._run.values.get(key))
        if before != now and (before or self._tokenizer.space_before_words):
            there = ", ".join(old["data_size"])
            problem = f"is {now}, but words of the earlier splits in {self._data_dir} ({there}) were encoded otherwise."
            remedy = f"Use another data_dir, or set {key}: {str(before).lower()}."
            raise ConfigError(self._data_dir, [Fault(key, problem, remedy)])

    def _tell_of_separators(self) -> None:
        """Warn if two texts are not separated as those that the model of the tokenizer was pre-trained with."""
        ours = getattr(self._processor.parameters, "separators", None)
        theirs = getattr(self._tokenizer, "separators", 0)
        if ours is not None and theirs not in {0, ours}:
            problem = f"is {ours}, but the model of this tokenizer was pre-trained with {theirs} between two texts"
            log.warning(f"separators: {problem}. Set separators: {theirs}.")

    def _refuse_other_tokens(self, old: Mapping[str, Any]) -> None:
        """Raise ConfigError if splits that stay were split into tokens by other rules, which ids do not show."""
        path = io.join(self._data_dir, ARGS_FILE)
        stay = ", ".join(split for split in old.get("data_size", ()) if split not in self.files)
        if not (stay and io.isfile(path)):
            return
        try:
            before = read_prepro_args(path)
        except ConfigError:  # damaged: it is about to be written anew
            return
        now, where = self._run.values, f"the earlier splits in {self._data_dir} ({stay})"
        faults = [
            Fault(
                key, f"is {json.dumps(now[key])}, but {json.dumps(before[key])} in {where}.",
                f"Set {key}: {json.dumps(before[key])}, or {ANEW}.",
            )
            for key in other_words(before, now)
            if key != "space_before_words"  # see `_refuse_other_words`
        ]  # fmt: skip
        for name, text in [] if faults else kept_files(self._tokenizer).items():
            kept = io.join(self._data_dir, name)
            if io.isfile(kept) and _text_of(kept) != text:
                problem = f"gives another {name} than that of {where}."
                faults.append(Fault("vocab_file", problem, f"Set vocab_file: {kept}, or {ANEW}."))
        if faults:
            raise ConfigError(self._data_dir, faults)

    def _first_look(self) -> Look:
        """Examine the first rows of all files; raises ConfigError if they are certainly not parsed as intended."""
        known = self._parameters
        look = Look(
            {split: SplitFile(file.path, file.labelled) for split, file in self.files.items()},
            self._loader,
            self._parser,
            self._findings,
            target_type=known.target_type,
            own_labels=known.target_map_file is None,
        )
        look.at_files(learns_labels=getattr(self._run.picked("processor"), "learns_labels", False))
        return look

    def _words(self) -> Words:
        processor = self._run.picked("processor")
        values = self._run.parameters("processor")
        return Words(values.pad_word, values.unk_word, tuple(getattr(processor, "special_words", ())))

    def _start_from(self, old: Mapping[str, Any]) -> None:
        """Continue from the metadata and the status in data_dir, keeping existing splits."""
        before = Making.read(self._data_dir)
        self._interrupted = before.status in {"running", "failed"} and before.fingerprint == self._fingerprint
        # Splits that another run left unfinished stay listed as such after this run.
        self._left = [*self.files, *(split for split in before.left if split not in self.files)]
        self._meta["data_size"] = sizes = _sizes(self._data_dir, old.get("data_size", {}))
        self._announce([split for split in self.files if split not in sizes])
        if old.get("data_size"):
            self._meta["max_len"] = max(self._meta["max_len"], old.get("max_len", 0))
        elif self._parameters.check_max_len:
            self._meta["max_len"] = 1

    def _begin(self) -> None:
        """On the first call, open the log file and write the resources that all splits share."""
        if self._begun:
            return
        self._begun = True
        if self._parameters.log_file is not None:
            self._early.open_file(io.join(self._data_dir, self._parameters.log_file))
        self._write_status("running")
        self._resources.write(self._run, self._data_dir, self._meta)
        write_meta(self._data_dir, self._meta)

    def _make_recipe(self, found: Resources) -> Recipe:
        target_unk = self._run.parameters("processor").target_unk
        if target_unk is not None and found.target_map is not None and found.target_map.find(target_unk) is None:
            fault = Fault("target_unk", f"'{target_unk}' is not a label.", "Name one of those in target_map.txt.")
            raise ConfigError(self._data_dir, [fault])
        encoder = Encoder(self._tokenizer, found.vocabulary)
        words = word_encoder(self._loader, found.words)
        numbers = self._parameters.target_type == "number"
        return Recipe(
            self._parser, self._loader, encoder, self._processor, found.target_map, target_unk, numbers=numbers,
            words=words,
        )  # fmt: skip

    # ---- one split

    def build_split(self, split: str, file: RawFile) -> None:
        """Make and commit one split, then announce it in the metadata, so that training can use it."""
        facts = {"fingerprint": self._fingerprint, "source": dict(file.identity), **self.digests}
        path = io.join(self._data_dir, split + self._suffix)
        self._last = path
        if self._interrupted and self._is_done(split, facts):
            self._begin()
            log.info(f"{split}: already finished, kept")
            self._kept.append(split)
            return
        labelled = file.labelled and self._resources.target_map is not None
        schema = schema_of(
            self._processor, labelled=labelled, several=self._loader.several_labels, queries=bool(self._loader.before)
        )
        start = time.monotonic()
        with _parts_folder(self._data_dir) as parts:
            part = io.join(parts, split)
            with PartWriter(part, schema) as writer:
                counts = self._write(split, file, writer)
            self._check(file, counts)
            file.refuse_changes()
            self.looking.at_split(split, self.tally(counts))
            self._begin()
            size = assemble([part], path, schema, facts=facts)
        self._drop_other_format(split)
        self._tell_ready(split, size)
        build_report.report_counts(
            split, counts, max_len=self._processor.parameters.max_len, unit=self._parser.unit,
            place=self._parser.place or self._parser.unit,
        )  # fmt: skip
        build_report.report_speed(split, counts, time.monotonic() - start)

    def tally(self, counts: Counts) -> Tally:
        """Return the statistics of the texts of a split."""
        return Tally.of(counts, max_len=self._processor.parameters.max_len)

    def _write(self, split: str, file: RawFile, writer: PartWriter) -> Counts:
        joiner = Joiner(self._recipe, remove_duplicate=self._loader.parameters.remove_duplicate)
        progress: ProgressBar[Any] | None = None
        for made in self.blocks_of(split, file):
            if progress is None:
                progress = log.progress(total=self._expected_lines(file, made), what=split, unit="rows")
            self._keep(split, joiner.join(made)[0], writer)
            self.looking.at_rows(split, made.keys)
            progress.update(made.counts.lines)
        last = joiner.finish()
        if last is not None:
            self._keep(split, last, writer)
        if progress is not None:
            progress.close()
        return joiner.counts

    def blocks_of(self, split: str, file: RawFile) -> Iterator[Made]:
        """Yield the samples made of each block of a split's raw file, in order."""
        loader = self._loader.parameters
        return self.work.made_of(
            split,
            file,
            self._crew,
            digests=self.digests,
            skip_bad_lines=loader.skip_bad_lines,
            hashed=loader.remove_duplicate,
            keyed=self.looking.remembers_texts,
        )

    @property
    def digests(self) -> dict[str, str]:
        """Digests of the vocabulary and the labels, which must be the same for all splits of a data_dir."""
        return self._resources.digests

    def _keep(self, split: str, samples: Samples, writer: PartWriter) -> None:
        writer.extend(samples)
        if "target" in samples:
            target = samples.columns["target"]
            self._labels.add(split, target.values if isinstance(target, Ragged) else target)
            target_map = self._resources.target_map
            if "logits" in samples and not isinstance(target, Ragged) and target_map is not None:
                self.looking.at_logits(split, samples.ragged("logits"), target, target_map.labels)

    def _expected_lines(self, file: RawFile, first: Made) -> int | None:
        """Return the number of lines of a file, counted or estimated from its first block; None if unknown."""
        counted = self._resources.lines.get(file.path)
        if counted is not None or not first.counts.bytes or file.is_compressed:
            return counted
        return max(round(io.size(file.path) / first.counts.bytes * first.counts.lines), 1)

    def _check(self, file: RawFile, counts: Counts) -> None:
        if not counts.samples:
            problem = f"no sample is left of {counts.lines:,} {self._parser.unit}s."
            raise ConfigError(file.path, [Fault("data_files", problem, "Check min_len and skip_bad_lines.")])
        if not self._parameters.check_max_len:
            return
        allowed = self._processor.parameters.max_len
        if counts.longest > allowed:
            problem = f"is {allowed:,}, but check_max_len found a sample of {counts.longest:,} tokens."
            raise ConfigError(file.path, [Fault("max_len", problem, "Raise it, or leave check_max_len out.")])
        self._meta["max_len"] = max(self._meta["max_len"], counts.longest)

    def _is_done(self, split: str, facts: Mapping[str, Any]) -> bool:
        manifest = commit.read_manifest(self._data_dir, split)
        if manifest is None or any(manifest.facts.get(key) != value for key, value in facts.items()):
            return False
        if commit.problems(self._data_dir, split, hashes=True) or split + self._suffix not in manifest.files:
            return False
        self._tell_ready(split, manifest.facts["num_samples"])
        return True

    def _tell_ready(self, split: str, size: int) -> None:
        """Record in the metadata that a split is ready, and which are still to come, for training that waits."""
        self._meta["data_size"][split] = size
        self._announce([other for other in self._meta.pop("arriving", ()) if other != split])
        write_meta(self._data_dir, self._meta)
        self._left.remove(split)
        self._write_status("running")

    def _announce(self, splits: list[str]) -> None:
        """Add the splits that are still to be made to the metadata, in order, if there are any."""
        self._meta |= {"arriving": splits} if splits else {}

    def _drop_other_format(self, split: str) -> None:
        for other in (io.join(self._data_dir, split + suffix) for suffix in SUFFIXES.values()):
            if not other.endswith(self._suffix) and io.isfile(other):
                io.remove(other)

    # ---- the end

    def give_up(self, error: BaseException) -> None:
        """End the workers, and record the status "failed" with the reason; the same command can finish the work."""
        self.end_work()
        if self._begun:
            with suppress(OSError):
                reason = " ".join(str(error).split())[:LONGEST_REASON]
                self._write_status("failed", f"{type(error).__name__}: {reason}".removesuffix(": "))

    def end_work(self) -> None:
        """End the workers."""
        self._crew.__exit__(None, None, None)

    def finish(self) -> dict[str, int]:
        """Log the report, record the status "finished", and return {split: number of samples} of the data_dir."""
        self.end_work()
        self._labels.report()
        build_report.show_samples(self._last, self._processor, self._resources.target_map, seed=self._parameters.seed)
        sizes: dict[str, int] = self._meta["data_size"]
        self._findings.add(at_the_beginning(self.files, self._run, self._loader))
        self.looking.finish(self._data_dir, sizes, dropped=self._loader.parameters.remove_duplicate)
        if self._kept:
            log.warning(
                "findings and counts of labels leave out what was finished before the interruption "
                f"({first_few(self._kept, 4)}), such as its texts that are in other splits, too. x-check with this "
                "config looks at everything."
            )
        self._write_status("finished")
        log.info(f"{self._data_dir}: {build_report.summary(sizes)}")
        return sizes

    def _write_status(self, status: MakingStatus, reason: str = "") -> None:
        Making(status, self._fingerprint, self._left, reason).write(self._data_dir)


def _parts_path(data_dir: str) -> str:
    """Return the local folder for files of unfinished splits."""
    spool = io.join(io.cache.spool(), hashlib.sha256(data_dir.encode()).hexdigest()[:16])
    return io.join(data_dir if io.islocal(data_dir) else spool, PARTS)


def _remove_parts(data_dir: str) -> None:
    """Remove files left by a killed run; no other process uses them, because we hold the lease."""
    if io.isdir(_parts_path(data_dir)):
        io.rmtree(_parts_path(data_dir))


@contextmanager
def _parts_folder(data_dir: str) -> Generator[str]:
    """Create the folder for parts, and remove it at the end."""
    io.makedirs(_parts_path(data_dir))
    try:
        yield _parts_path(data_dir)
    finally:
        _remove_parts(data_dir)


def _sizes(data_dir: str, told: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes of existing splits, from their manifests if possible: a killed run may have replaced one."""
    found = {split: commit.read_manifest(data_dir, split) for split in told}
    return {
        split: told[split] if manifest is None else manifest.facts.get("num_samples", told[split])
        for split, manifest in found.items()
    }


def _text_of(path: str) -> str:
    with io.open(path, "r", encoding="utf-8") as file:
        return str(file.read())
