"""A model with its weights, ready to score: any input -> chunks of samples -> predictions in the order of the input."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from xdpx.config.faults import ConfigError, Fault, first_few, refusal
from xdpx.config.spmd_keys import SPMD
from xdpx.datasets import word_vocabulary
from xdpx.datasets.evaluation_data import EvaluationData, exact_width, in_file_order
from xdpx.datasets.findings import tokens
from xdpx.datasets.findings.finding import Findings
from xdpx.datasets.findings.tokens import Tally
from xdpx.datasets.raw_data import RawChunk, RawFile, stream
from xdpx.datasets.sample_making import Counts
from xdpx.datasets.store import Store
from xdpx.datasets.training_data import Ranks
from xdpx.inference.given import GivenRows
from xdpx.inference.mixed_rows import may_mix, warn_of_mixing
from xdpx.inference.own_code import warn_of_changes
from xdpx.inference.plan import InferencePlan, Input, with_newest
from xdpx.logger import log
from xdpx.metrics.judging import NUMBER_COLUMNS
from xdpx.processors.samples import Ragged, concatenate, multi_hot
from xdpx.tokenizers.encoder import Encoder
from xdpx.tokenizers.target_map import UNKNOWN, TargetMap, number_of
from xdpx.tokenizers.vocabulary import Vocabulary
from xdpx.utils import io
from xdpx.utils.distributed_utils import collected, dealt, get_world_size, is_master, place_in_group

if TYPE_CHECKING:
    from xdpx.engines.base import Batch, Split
    from xdpx.logger import ProgressBar
    from xdpx.processors.samples import Samples

Item = TypeVar("Item")

TRIED_BATCHES = 4
"""Batches of rows that are computed both ways to measure the cost of `exact`."""
CHUNK_ROWS = 8192
"""Rows in memory at a time; batches of similar length are formed among them."""


class BatchPlaces(NamedTuple):
    """The indices of a batch's samples in their input, and their lengths in tokens (None if unknown), (B,) each."""

    ids: NDArray[np.int64]
    lengths: NDArray[np.int64] | None


class Chunk(NamedTuple):
    """Some consecutive rows of an input.

    Attributes:
        rows: the original columns of every row; empty for a store.
        samples: what the model reads.
        kept: row of each sample within the chunk, int64, shape (samples,).
        labelled: whether the last of the columns is a label.
        targets: class of each sample, -1 for a label not seen in training; multi-hot (samples, C) if rows have several
            labels; None if there are no labels.
    """

    rows: list[list[str]]
    samples: Samples
    kept: NDArray[np.int64]
    labelled: bool
    targets: NDArray[Any] | None

    @property
    def num_rows(self) -> int:
        """Number of rows of the input that the chunk covers."""
        return len(self.rows) or len(self.samples)


class Predictor:
    """A model with its weights and everything that turns text into its batches.

    Args:
        plan: what to build. The attribute `plan` is another one if its best checkpoint was replaced meanwhile.
        cuda: whether to use the GPU; None: if there is one.
        seed: of the initial weights.
        temperature: divides the logits of classes.

    Raises:
        ConfigError: the weights belong to another model, a resource is missing, or the loss has no softmax to temper.
    """

    def __init__(
        self, plan: InferencePlan, *, cuda: bool | None = None, seed: int = 1, temperature: float = 1.0
    ) -> None:
        self.plan = plan
        if plan.checkpoint is not None and plan.exported is None:
            warn_of_changes(io.parent(plan.checkpoint), (plan.train, plan.prepro))
        vocabulary, labels = plan.resource("vocab.txt"), plan.resource("target_map.txt")
        words = plan.train.parameters("processor")
        self.vocabulary = (
            Vocabulary.read(vocabulary, pad_word=words.pad_word, unk_word=words.unk_word) if vocabulary else None
        )
        self.targets = TargetMap.read(labels) if labels else None
        self.processor = plan.train.build("processor", vocabulary=self.vocabulary)
        self._sampler = plan.train.build("sampler")
        self.engine = _engine(plan, cuda=cuda, seed=seed, split=self.processor.split, is_tempered=temperature != 1.0)
        # Some networks quantise a row by the range of its whole batch: only batches of one give it a fixed answer.
        self._one_by_one = plan.exported is not None and self.engine.one_by_one
        if temperature == 1.0 and get_world_size() == 1:  # else it belongs to one checkpoint, or all must read the same
            self.plan = plan = with_newest(plan)
        self.state = _state(self.engine, plan, seed=seed)
        if temperature != 1.0:
            _temper(self.task, plan, temperature)
        self._ranks = Ranks(*place_in_group())
        on_torch = plan.exported is None and plan.train.values["engine"] != SPMD
        self._is_to_try = (
            on_torch
            and not (plan.exact or self.compares_rows)
            and may_mix(self.task, self.task.model, self.task.loss, self.processor)
        )
        self._tried: Samples | None = None
        self._start_counting()

    @property
    def task(self) -> Any:
        """The task, which turns predictions into metrics and rows."""
        return self.state.task

    @property
    def compares_rows(self) -> bool:
        """Whether scores depend on which rows share a batch, by design."""
        return bool(self.task.loss.compares_rows or self._sampler.draws_held_out)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns of a row's prediction; an export says them, so that its task is not needed."""
        told = self.engine.columns if self.plan.exported is not None else None
        return tuple(told if told is not None else self.task.header())

    def own_rows(self, found: Mapping[str, Any]) -> Iterator[list[str]] | None:
        """Return the rows that the loss makes of predictions; None where these are classes and probabilities."""
        if self.plan.exported is not None and self.engine.answers:
            return None
        rows: Iterator[list[str]] | None = self.task.own_rows(found, self.labels)
        return rows

    @property
    def labels(self) -> list[str] | None:
        """Names of the classes; None if there are none, as in a regression."""
        return self.targets.labels if self.targets and self.columns != NUMBER_COLUMNS else None

    @cached_property
    def loader(self) -> Any:
        """The loader, which turns raw rows into records.

        Raises:
            ConfigError: the args.py of x-prepro is missing.
        """
        return self._prepro.build("loader")

    # ---- scoring

    def scored_batches(
        self, source: Input, *, most: int | None = None, ignore_novel_target: bool = False
    ) -> Iterator[Batch]:
        """Yield this process's share of the labelled batches of an input, with a progress bar; times their use.

        Args:
            source: the input to score.
            most: most batches over all processes.
            ignore_novel_target: treat labels not seen in training as the first class.

        Raises:
            ConfigError: a line is bad, has no label, or (without `ignore_novel_target`) a label not seen in training,
                unless labels are numbers.
        """
        found = self.placed_batches(source, most=most, ignore_novel_target=ignore_novel_target)
        return (batch for _, batch in found)

    def placed_batches(
        self, source: Input, *, most: int | None = None, ignore_novel_target: bool = False
    ) -> Iterator[tuple[BatchPlaces, Batch]]:
        """Yield the batches of `scored_batches`, each with the places of its samples in the input."""
        self._start_counting()
        total: int | None = None
        found: Iterable[tuple[BatchPlaces, Batch]]
        if most is not None and self._scores_one_by_one:
            most *= self.plan.batch_size  # the same number of rows as in full batches
        if source.is_store:
            store = Store.open(source.path)
            if self._needs_labels and "target" not in store:
                raise _without_labels(source)
            cut = self._drawn(store, most=most).share(self._ranks)
            found, total = self._placed(cut), len(cut)
        else:
            found = dealt(islice(self._raw_batches(source, ignore_novel_target=ignore_novel_target), most))
        bar: ProgressBar[Any]
        with log.progress(total=total or most, what=source.name, unit="batch") as bar:
            for each in self._timed(found):
                yield each
                bar.update()

    def _raw_batches(self, source: Input, *, ignore_novel_target: bool) -> Iterator[tuple[BatchPlaces, Batch]]:
        parts: list[Samples] = []
        for chunk in self.raw_stream(source, ignore_novel_target=ignore_novel_target):
            scorable = chunk.labelled or self.plan.joins_lines or self.loader.are_answered(chunk.rows)
            if not scorable and (self._needs_labels or self.loader.has_answers):
                raise _without_labels(
                    source, what="questions without answers" if self.loader.has_answers else "no labels"
                )
            if self._sampler.draws_held_out:
                parts.append(chunk.samples)
            else:
                yield from self._placed(self._cut(chunk.samples, one_by_one=self._scores_one_by_one))
        if parts:
            yield from self._placed(self._drawn(concatenate(parts)))

    def raw_stream(
        self,
        source: Input,
        *,
        classes: bool = True,
        ignore_novel_target: bool = False,
        skip_bad_lines: bool | None = None,
    ) -> Iterator[RawChunk]:
        """Yield chunks of a raw file, read as for scoring.

        Args:
            source: the raw file.
            classes: whether samples hold their class; if not, a label not seen in training is not a fault.
            ignore_novel_target: treat such a label as the first class. Of a regression it has no effect.
            skip_bad_lines: whether to skip bad lines; None: as the command says.
        """
        numbers = classes and self.targets is not None and self.task.loss.reads_numbers
        if numbers:
            self._know_numbers_of(source, skip_bad_lines=skip_bad_lines)
        first = self.targets.labels[0] if ignore_novel_target and self.targets and not numbers else None
        target_map = self.targets if classes else None
        return self._stream(
            source, skip_bad_lines=skip_bad_lines, target_map=target_map, target_unk=first, numbers=numbers
        )

    def _know_numbers_of(self, source: Input, *, skip_bad_lines: bool | None) -> None:
        """Add the numbers in the labels of a raw file to those of training: a number is right wherever it is from."""
        parser, loader, skips = self._read_by(source, skip_bad_lines)
        file = RawFile.survey(source.path, parser, loader, skip_bad_lines=skips)
        known = self.targets
        if known is None or not file.labelled:
            return
        records = (loader.records(parser.parse(block), labelled=True) for block in file.blocks())
        found = dict.fromkeys(label for each in records for label in each.targets or ())
        novel = [label for label in found if label not in known and number_of(label) is not None]
        if novel:
            self.targets = TargetMap([*known.labels, *novel])
            self.task.loss.know_numbers([number_of(label) for label in self.targets.labels])

    # ---- predicting

    def chunks(self, source: Input, *, most: int | None = None) -> Iterator[Chunk]:
        """Yield an input in chunks of a few thousand rows; at most `most` rows in all.

        Labels are not needed here, so a label not seen in training is not a fault.
        """
        self._start_counting()
        left = most if most is not None else -1
        for chunk in self._store_chunks(source) if source.is_store else self._raw_chunks(source):
            if left == 0:
                return
            cut = _first_rows(chunk, left) if 0 <= left < chunk.num_rows else chunk
            left -= cut.num_rows if left > 0 else 0
            yield cut

    def predict(self, chunk: Chunk, *, alone: bool = False, batch_size: int | None = None) -> dict[str, NDArray[Any]]:
        """Return the predictions of a chunk on the first process, in the order of its samples; {} on the others.

        On all processes: each predicts its share of the batches. With `alone` this process predicts and returns all
        of them, independently of the others. `batch_size` defaults to that of the plan.

        Raises:
            ConfigError: the loss predicts no classes.
        """
        batches = self._cut(chunk.samples, one_by_one=self._one_by_one, batch_size=batch_size)
        found = self._predicted(batches if alone else batches.share(self._ranks))
        parts = found if alone else collected(found)
        if not (alone or is_master()):
            return {}
        predictions = self._in_order(parts)
        if chunk.targets is not None:
            predictions["target"] = chunk.targets
        return predictions

    def predict_samples(self, samples: Samples, *, batch_size: int) -> dict[str, NDArray[Any]]:
        """Return the predictions of samples, one row each, in the same order; this process predicts all of them.

        Raises:
            ConfigError: the loss predicts no classes.
        """
        batches = self._cut(samples, one_by_one=self._one_by_one, batch_size=batch_size)
        return self._in_order(self._predicted(batches))

    def _predicted(self, batches: EvaluationData) -> Iterator[tuple[NDArray[np.int64], Any]]:
        for rows, batch in self._timed(self._tried_once(batches)):
            yield rows, self._answers(batch)

    def _answers(self, batch: Batch) -> dict[str, Any]:
        found: dict[str, Any] = self.engine.predictions_to_host(self.engine.score(self.state, batch))
        return found

    def _tried_once(self, data: EvaluationData) -> Iterator[tuple[NDArray[np.int64], Batch]]:
        """Yield (rows, batch) of the data; at the first batch of several rows, warn if code of a user mixes them."""
        for rows, batch in data:
            if self._is_to_try and len(rows) > 1:
                self._is_to_try = False
                last = self._batches_of(data.samples.take(rows[-1:]), batch_size=1, exact=False)
                alone = next(batch for _, batch in last)
                warn_of_mixing(self._answers, batch, alone, num_rows=len(rows), what=type(self.task.model).__name__)
            yield rows, batch

    def _in_order(self, found: Iterable[tuple[NDArray[np.int64], Any]]) -> dict[str, NDArray[Any]]:
        """Join (indices of samples, predictions) of batches into arrays in the order of the samples."""
        parts = list(found)
        rows = [rows for rows, _ in parts]
        predictions = {
            name: in_file_order(rows, [values[name] for _, values in parts])
            for name, value in parts[0][1].items()
            if np.ndim(value) > 0
        }
        if "prob" not in predictions and "prob" in self.columns:
            loss = self.plan.train.values.get("loss")
            raise refusal("loss", f"'{loss}' predicts no classes.", "Use x-eval to score it.")
        return predictions

    def count_rows(self, source: Input) -> int | None:
        """Return the number of rows of an input; None if counting would cost as much as reading it."""
        if source.is_store:
            return len(Store.open(source.path))
        return io.lines(source.path) if io.islocal(source.path) and io.isfile(source.path) else None

    def column_names(self, source: Input, chunk: Chunk) -> list[str]:
        """Return the names of the original columns: from the file, else the text fields, and `target` for the label."""
        if source.is_store or not chunk.rows:
            return []
        prepro = source.reading or self._prepro
        named = prepro.build("parser").header(source.path)
        width = len(chunk.rows[0])
        if named and len(named) >= width:
            return list(named[:width])
        loader = prepro.build("loader")
        texts = [*loader.before, *loader.column_names]
        more = loader.between[: max(width - len(texts) - chunk.labelled, 0)]
        return [*texts, *more, "target"] if chunk.labelled else [*texts, *more]

    def cost_of_exact(self) -> str:
        """Return a sentence on how much slower exact batches are than ordinary ones; "" before there were any.

        Measured on this process: some rows of an input are computed both ways in turn, three times each.
        """
        if self._tried is None:
            return ""
        seconds = {True: np.inf, False: np.inf}
        kept = self.engine.exact
        for exact in (True, False) * 3:
            self.engine.exact = kept if exact else None
            begun = time.perf_counter()
            for _, batch in self._batches_of(self._tried, batch_size=self.plan.batch_size, exact=exact):
                self._answers(batch)
            seconds[exact] = min(seconds[exact], time.perf_counter() - begun)
        self.engine.exact = kept
        ratio = seconds[True] / seconds[False]
        found = f"exact: {ratio:.2f}x the time of batches as they come, on {len(self._tried):,} rows"
        return f"{found}; {kept.seconds:.1f} s to find out which batch sizes give the same bits"

    def report(self, source: Input) -> str:
        """Return the mean time per batch of the last input, and how many of its lines were skipped.

        Warns of the texts of a raw file that the model can hardly read: unknown words, no words, more than max_len.
        """
        if self.plan.prepro is not None:
            values, tally = self.plan.prepro.values, Tally.of(self._counts, max_len=self.processor.parameters.max_len)
            found = Findings(source.name, values.get("ignore_findings") or [], patient=True)
            found.add(tokens.each(source.name, tally, trained=False, ready=values.get("vocab_file") is not None))
            found.report()
        self._tell_of_novel_labels(source)
        rows = 1 if self._one_by_one else self.plan.batch_size
        text = f"{self._seconds / max(self._batches, 1) * 1000:.1f} ms per batch of {rows}"
        skipped = self._counts.num_bad
        return f"{text}, {skipped} bad lines skipped" if skipped else text

    def _tell_of_novel_labels(self, source: Input) -> None:
        """Warn of labels that were scored as the first class."""
        novel, known = self._counts.novel, self.targets
        if novel and known is not None:
            labels = "1 label" if novel.total() == 1 else f"{novel.total():,} labels"
            shown = f"such as {next(iter(novel))!r}, counted as {known.labels[0]!r} (ignore_novel_target)"
            log.warning(f"{source.name}: {labels} that training lacks, {shown}")

    def _start_counting(self) -> None:
        """Reset what `report` tells of: rows may have been read since, to calibrate or to show the worst of them."""
        self._batches, self._seconds, self._counts = 0, 0.0, Counts()

    @property
    def _scores_one_by_one(self) -> bool:
        """Whether rows are scored one by one too: not if the loss compares the rows of a batch with each other."""
        return self._one_by_one and not self.task.loss.compares_rows

    @property
    def _needs_labels(self) -> bool:
        """Whether scores compare with labels; losses that compare texts with each other score unlabelled ones, too.

        A student of a teacher learns without labels, but is scored as a classifier. A loss of a user may not say what
        it needs: then it gets labels if it was trained on data with labels.
        """
        kind = self.plan.train.picked("loss")
        if getattr(kind, "learns_labels", False) or hasattr(kind, "probabilities"):
            return True
        return self.targets is not None and not kind.__module__.startswith("xdpx.")

    # ---- reading

    @property
    def _prepro(self) -> Any:
        if self.plan.prepro is None:
            problem = f"of {self.plan.data_dir} no longer exists, so raw text cannot be read as in training."
            raise refusal("args.py", problem, "Give data_dir in extra_config.")
        return self.plan.prepro

    @cached_property
    def _encoder(self) -> Encoder:
        """The encoder of texts into token ids; cached, as building it takes longer than encoding a text."""
        if self.vocabulary is None:
            problem = f"is neither in {' nor in '.join(self.plan.folders)}."
            raise refusal("vocab.txt", problem, "Give data_dir in extra_config.")
        tokenizer = self._prepro.build("tokenizer", resources=self.plan.resource_folder)
        return Encoder(tokenizer, self.vocabulary)

    def _read_by(self, source: Input, skip_bad_lines: bool | None) -> tuple[Any, Any, bool]:
        """Return the parser and the loader of a raw file, and whether bad lines are skipped; None: as it is read."""
        prepro = source.reading or self._prepro
        if source.rows is not None:
            return GivenRows(source.rows), prepro.build("loader"), False
        skips = prepro.values.get("skip_bad_lines") if skip_bad_lines is None else skip_bad_lines
        return prepro.build("parser"), prepro.build("loader"), bool(skips)

    def _stream(self, source: Input, *, skip_bad_lines: bool | None = None, **labels: Any) -> Iterator[RawChunk]:
        prepro, encoder = source.reading or self._prepro, self._encoder
        parser, loader, skips = self._read_by(source, skip_bad_lines)
        words = self.plan.resource(word_vocabulary.FILE)
        known = self.processor.parameters
        of_words = Vocabulary.read(words, pad_word=known.pad_word, unk_word=known.unk_word) if words else None
        return stream(
            source.path,
            parser=parser,
            loader=loader,
            words=word_vocabulary.word_encoder(loader, of_words),
            encoder=encoder,
            processor=self.processor,
            rows_per_chunk=CHUNK_ROWS,
            workers=1 if source.rows is not None else prepro.values.get("workers", 1),
            skip_bad_lines=skips,
            counts=self._counts,
            **labels,
        )

    def _raw_chunks(self, source: Input) -> Iterator[Chunk]:
        for raw in self._stream(source):
            targets = None
            if raw.labelled and self.targets is not None:
                targets = self._classes_of([raw.rows[row][-1] for row in raw.kept.tolist()], self.targets)
            yield Chunk(raw.rows, raw.samples, raw.kept, raw.labelled, targets)

    def _store_chunks(self, source: Input) -> Iterator[Chunk]:
        store = Store.open(source.path)
        for start in range(0, len(store), CHUNK_ROWS):
            samples = store.take(np.arange(start, min(start + CHUNK_ROWS, len(store))))
            targets = None
            if "target" in samples:
                column = samples.columns["target"]
                num_classes = len(self.targets or ()) or self.plan.train.values["num_classes"]
                targets = multi_hot(column, num_classes) if isinstance(column, Ragged) else column
            yield Chunk([], samples, np.arange(len(samples)), targets is not None, targets)

    def _classes_of(self, cells: list[str], known: TargetMap) -> NDArray[Any]:
        """Return the class of each label (N,); multi-hot (N, C) over the known classes if rows have several labels."""
        loader = self.plan.prepro.build("loader") if self.plan.prepro else None
        if loader is None or not loader.several_labels:
            return known.classes(cells, unknown=UNKNOWN)
        rows = [[known.find(label) for label in loader.labels_of(cell)] for cell in cells]
        found = np.zeros((len(rows), len(known)), np.float32)
        for index, row in enumerate(rows):
            found[index, [each for each in row if each is not None]] = 1.0
        return found

    def _cut(
        self,
        samples: Samples,
        *,
        one_by_one: bool,
        most: int | None = None,
        drawn: list[NDArray[np.int64]] | None = None,
        batch_size: int | None = None,
    ) -> EvaluationData:
        """Return batches of samples of similar length, the same as in training's evaluation; or batches of one."""
        exact = self.plan.exact and not self._one_by_one
        if exact:
            tried = min(len(samples), TRIED_BATCHES * self.plan.batch_size)
            if tried > len(self._tried or ()):
                self._tried = samples.take(np.linspace(0, len(samples) - 1, tried).astype(np.int64))
        rows = 1 if one_by_one else batch_size or self.plan.batch_size
        return self._batches_of(samples, batch_size=rows, most=most, drawn=drawn, exact=exact)

    def _batches_of(
        self,
        samples: Samples,
        *,
        batch_size: int,
        exact: bool,
        most: int | None = None,
        drawn: list[NDArray[np.int64]] | None = None,
    ) -> EvaluationData:
        positions = self.plan.train.values.get("max_position_embeddings")
        can_shuffle = most is not None or self.plan.exported is None  # a task imports torch
        shuffled = can_shuffle and self.plan.train.picked("task").shuffles_held_out
        return EvaluationData(
            samples, self.processor, batch_size=batch_size, max_steps=most,
            seed=self.plan.train.values.get("seed") or 0, drawn=drawn, shuffled=shuffled,
            pad_multiple=exact_width(self.processor, positions) if exact else 1, alike=exact,
        )  # fmt: skip

    def _placed(self, data: EvaluationData) -> Iterator[tuple[BatchPlaces, Batch]]:
        samples = data.samples
        lengths = samples.lengths if "length" in samples else None
        for rows, batch in self._tried_once(data):
            yield (
                BatchPlaces(
                    samples.ids[rows].astype(np.int64), None if lengths is None else lengths[rows].astype(np.int64)
                ),
                batch,
            )

    def _drawn(self, samples: Any, *, most: int | None = None) -> EvaluationData:
        """Return the batches to score: those that the sampler draws, if it also decides held-out batches."""
        seed = self.plan.train.values.get("seed") or 0
        drawn = self._sampler.held_out(samples, batch_size=self.plan.batch_size, seed=seed)
        if drawn is not None and self.plan.exact:
            sampler = self.plan.train.values["sampler"]
            problem = f"is true, but the sampler '{sampler}' decides which rows are scored together."
            raise refusal("exact", problem, "Leave it out.")
        return self._cut(samples, most=most, drawn=drawn, one_by_one=self._scores_one_by_one)

    def _timed(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield items; count them, and the time from yielding one until the next is requested."""
        for item in items:
            begun = time.perf_counter()
            yield item
            self._seconds += time.perf_counter() - begun
            self._batches += 1


def _without_labels(source: Input, *, what: str = "no labels") -> ConfigError:
    problem = f"has {what}, so it cannot be scored."
    return ConfigError(source.path, [Fault(source.key, problem, "Use x-pred for it.")])


def _engine(plan: InferencePlan, *, cuda: bool | None, seed: int, split: Split, is_tempered: bool) -> Any:
    run = plan.train
    if plan.exported is not None:
        from xdpx.inference.exported import ExportedEngine

        changed = is_tempered or bool(plan.given - {"data_dir"})
        return ExportedEngine(run, plan.exported, threads=plan.threads, exact=plan.exact, changed=changed)
    from xdpx.checkpoints.trusted import load_weights

    def make_task() -> Any:
        return run.picked("task").built(run, run.build("loss"))

    if run.values["engine"] == SPMD:
        from xdpx.tasks.spmd.building import build_engine

        return build_engine(run, make_task, seed=seed, cuda=cuda, read_weights=load_weights, trains=False)
    from xdpx.engines.pytorch import world
    from xdpx.engines.pytorch.engine import PyTorchEngine
    from xdpx.engines.pytorch.options import EngineOptions

    device = "auto" if cuda is None else "cuda" if cuda else "cpu"
    if get_world_size() > 1:
        device = str(world.current(use_cpu=cuda is False).device)
    return PyTorchEngine(
        make_task,
        options=EngineOptions(device=device, seed=seed, exact=plan.exact),
        read_weights=load_weights,
        split=split,
    )


def _state(engine: Any, plan: InferencePlan, *, seed: int) -> Any:
    """Return the engine's state: with the weights of the checkpoint, or the initial ones if there is none."""
    if plan.exported is not None:
        return engine.start(seed)
    from xdpx.checkpoints.trusted import load_weights
    from xdpx.models.pytorch.weights import MOST_NAMES_SHOWN, read

    if plan.checkpoint is not None:
        weights = read(plan.checkpoint, load_weights)
        broken = [name for name, weight in weights.items() if weight.isnan().any()]
        if broken:
            names = first_few(broken, MOST_NAMES_SHOWN)
            log.warning(f"{plan.checkpoint}: {names}: contains NaN, so no prediction of this model means anything.")
        return engine.with_weights(weights)
    state = engine.start(seed)
    lacking = getattr(getattr(state.task, "model", None), "not_in_file", []) if plan.of_tensorflow else []
    if lacking:
        problem = f"lacks weights of the model: {first_few(lacking, MOST_NAMES_SHOWN)}. They would be random."
        remedy = "Name the checkpoint of this model, with its head; tf_names gives names to weights of your own."
        raise refusal("checkpoint", problem, remedy)
    return state


def _temper(task: Any, plan: InferencePlan, temperature: float) -> None:
    """Make the model divide its logits, so that probabilities, loss and metrics all use the temperature.

    Raises:
        ConfigError: the loss applies no softmax to the logits, or the engine is spmd.
    """
    if not task.loss.reads_softmax or plan.train.values["engine"] == SPMD:
        problem = f"is {temperature:g}, but the loss '{plan.train.values['loss']}' reads no logits of one softmax."
        if plan.train.values["engine"] == SPMD:
            problem = f"is {temperature:g}, which the engine spmd does not know."
        raise refusal("temperature", problem, "Leave it out, or set engine: pytorch.")
    task.model.register_forward_hook(lambda model, given, logits: logits / temperature)


def _first_rows(chunk: Chunk, most: int) -> Chunk:
    """Return the first `most` rows of a chunk."""
    kept = np.flatnonzero(chunk.kept < most)
    targets = chunk.targets[kept] if chunk.targets is not None else None
    return Chunk(chunk.rows[:most], chunk.samples.take(kept), chunk.kept[kept], chunk.labelled, targets)
