"""Evaluate or decode one input with a state; both iterate over the input by its window."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from typing import Any

import jax
import numpy as np

from xdpx.config.faults import refusal
from xdpx.datasets.inputs.base_input import BaseInput, refused
from xdpx.datasets.inputs.rows import PROVENANCE, SAMPLE_WEIGHTS
from xdpx.datasets.inputs.seqio_metrics import origins
from xdpx.datasets.inputs.windows import walk
from xdpx.engines.spmd import world
from xdpx.engines.spmd.partitioning import path_name
from xdpx.engines.spmd.state import SpmdState
from xdpx.engines.spmd.steps import NOTED, SUM, WEIGHT
from xdpx.engines.spmd.transfer import tree_to_host
from xdpx.experiments.running import job_folder
from xdpx.experiments.running.batches import batch_text, check_content, shapes_of
from xdpx.experiments.running.outputs import OutputFiles, Rows, plain, rows_of
from xdpx.experiments.running.parts import Parts
from xdpx.experiments.running.summaries import SummaryWriter, layer_tags, metric_tags
from xdpx.experiments.running.vocabularies import warn_of_other_ends
from xdpx.logger import log
from xdpx.models.spmd.decoding.rows import ROW_IN_BATCH
from xdpx.tasks.spmd.metrics import Totals, final_of, with_counts
from xdpx.utils import commit, io
from xdpx.utils.nested_map import NestedMap

Result = dict[str, float]

SECONDS_BETWEEN_NOTES = 60.0
"""How often a long evaluation says how far it is: one of data without end would otherwise hang without a word."""

_SOURCES = {"weights": "another checkpoint", "settings": "another model, metric or input"}
"""What outputs are computed from -> what they are of if it differs."""

_talk = world.Talk("outputs")


class Program:
    """Evaluates or decodes one input, for any number of checkpoints.

    Args:
        parts: of the run.
        data: the input.
        kind: prefix of the program's name: `eval_test` or `decode_test`.
        after: summaries of later steps, from before a restart, are no longer shown.

    Attributes:
        name: of the program: `<kind>_<input>`.
        before_batch: called before each batch with the step, on all processes; may end the program by raising.
        weights_of: returns the id of the weights of a step, by which another job's are told apart; '' if it is unknown.
    """

    folder, prefix, decodes = "", "", False

    def __init__(self, parts: Parts, data: BaseInput, kind: str, *, after: int | None = None) -> None:
        self.parts, self.data, self.name = parts, data, f"{kind}_{data.name}"
        self.window = data.window
        if data.hparams.eval_window is None and not data.hparams.given() & {"reset_for_eval", "eval_loop_num_batches"}:
            log.warning(
                f"{self.name}: takes a single batch each time, the one after the last, because nothing says how many. "
                "Write eval_window='full_epoch' for all data, 'first(n)' or 'rolling(n)'.",
                once=True,
            )
        self.before_batch: Callable[[int], object] = lambda step: None
        self.weights_of: Callable[[int], str] = lambda step: ""
        shown = parts.options.enable_summary_writer and parts.is_first
        self._writer = SummaryWriter(
            io.join(parts.folder, job_folder.SUMMARIES) if shown else None, self.name, after=after
        )
        pickled = parts.options.decode_output_pickle and parts.task.hparams.decode.output_pickle
        place = io.join(parts.folder, self.folder, data.name)
        self.outputs = OutputFiles(place, self.prefix, process=parts.ranks.rank, pickled=pickled)

    def run(self, state: Any, step: int, *, again: bool = False) -> Result:
        """Return the metrics of a step, computed unless its outputs exist.

        Args:
            state: a state for scoring.
            step: number of updates of the state.
            again: compute even if the outputs exist.
        """
        known, other = (None, "") if again or not self.window.resets else self._known(step)
        place = self.outputs.metrics_path(step)
        if known is not None and not other:
            log.info(f"{self.name}: step {step} is already done, its outputs are in {place}")
            return known
        if known is not None and self.parts.is_first:
            kept = self.outputs.keep_earlier(step)
            log.info(f"{self.name}: step {step} is computed again, as {place} is of {other}; it is kept in {kept}")
        found = self._do(state, step)
        log.info(f"{self.name}, step {step}: {', '.join(f'{name} {value:.5g}' for name, value in found.items())}")
        return found

    def is_done(self, step: int) -> bool:
        """Return whether the outputs of a step exist, so that `run` would not compute them again."""
        if not self.window.resets:
            return False
        known, other = self._known(step)
        return known is not None and not other

    def _known(self, step: int) -> tuple[Result | None, str]:
        """Return (metrics of a step if they exist, what else they are of than what `run` would compute them from)."""
        found: tuple[Result | None, str] = self.parts.ranks.broadcast(
            self._found(step) if self.parts.is_first else None
        )
        return found

    def _found(self, step: int) -> tuple[Result | None, str]:
        there = self.outputs.metrics_of(step)
        if there is None:
            return None, ""
        metrics, before = there
        now = self._source(step)
        differing = [what for key, what in _SOURCES.items() if key in before and key in now and before[key] != now[key]]
        return metrics, " and ".join(differing)

    def _source(self, step: int) -> dict[str, str]:
        weights = self.weights_of(step)
        settings = job_folder.settings_digest(self.parts, self.data, decodes=self.decodes)
        return {"settings": settings, **({"weights": weights} if weights else {})}

    def _do(self, state: SpmdState, step: int) -> Result:
        raise NotImplementedError

    def _finish(self, step: int, rows: Rows, metrics: Result, tags: Mapping[str, float]) -> Result:
        self.outputs.write_rows(step, rows)
        _talk.barrier()
        if self.parts.is_first:
            self.outputs.write_metrics(step, metrics, self._source(step))
            self._writer.scalars(tags, step)
        return metrics

    def _batches(self, step: int) -> Iterator[Any]:
        count, told = 0, time.monotonic()
        with closing(walk(self.data, self.window)) as batches:
            while True:
                self.before_batch(step)
                batch = next(batches, None)
                if batch is None:
                    break
                self._refuse_uneven(batch)
                yield check_content(batch, self.parts, self.data, decoding=self.decodes)
                count += 1
                if time.monotonic() - told >= SECONDS_BETWEEN_NOTES:
                    told = time.monotonic()
                    log.info(f"{self.name}: {count:,} batches so far; eval_window is '{self.window}'")
            self._refuse_uneven(None)
        if not count:
            log.warning(f"{self.name}: the input has no batch, so there is nothing to report.")

    def _refuse_uneven(self, batch: NestedMap | None) -> None:
        """Raise ConfigError, on all processes, unless each has a batch of the same shapes, or none: they would hang."""
        given = _talk.gather(None if batch is None else shapes_of(batch))
        for index, shapes in enumerate(given):
            if shapes != given[0]:
                problem = f"process 0 has {batch_text(given[0])}, process {index} has {batch_text(shapes)}."
                remedy = (
                    "Give all the same number of batches of equal shapes, padded by rows with eval_sample_weights 0."
                )
                raise refused(self.data.hparams, "get_next", problem, remedy)

    def _keys(self, batch: Mapping[str, Any]) -> Sequence[str | None]:
        """Return the key of each row, '' if the input does not provide keys; None for padding rows."""
        count = _rows_in(batch)
        ask = getattr(self.data, "row_keys", None)
        if ask is not None and any(getattr(self.data, f"has_{kind}_metrics", False) for kind in ("predict", "score")):
            return list(ask(batch))
        weights = batch.get(SAMPLE_WEIGHTS)
        return ["" if weights is None or weights[index] > 0 else None for index in range(count)]

    def _keyed(
        self, batch: NestedMap, keys: Sequence[str | None], rows: Iterable[tuple[int, Mapping[str, Any]]]
    ) -> Rows:
        """Return the rows of real examples with their keys, and their provenance if the batch has it.

        Args:
            batch: the input.
            keys: of the rows of the batch.
            rows: (row of the batch, result).
        """
        kept = [(index, row) for index, row in rows if keys[index] is not None]
        if PROVENANCE not in batch:
            return [(keys[index], row) for index, row in kept]
        names, found = ("shard_index", "num_shards", "index_within_shard"), origins(batch)
        provenance = [[dict(zip(names, one, strict=True)) for one in examples] for examples in found]
        return [(keys[index], {**row, PROVENANCE: provenance[index]}) for index, row in kept]

    def close(self) -> None:
        """Close files and threads."""
        self._writer.close()
        self.data.close()


class EvalProgram(Program):
    """Computes metrics of one input, over all its batches together."""

    folder, prefix = job_folder.EVAL_OUT, "eval_out"

    def _do(self, state: SpmdState, step: int) -> Result:
        totals, rows = Totals(), list[tuple[str | None, Mapping[str, Any]]]()
        engine = self.parts.engine
        for batch in self._batches(step):
            found = engine.predictions_to_host(engine.score(state, batch))
            self._warn_of_padding(batch, found)
            totals.add({name: value for name, value in found.items() if isinstance(value, float)})
            # More than one number per token would fill the disk.
            told = rows_of({name: fact for name, fact in found.items() if np.ndim(fact) in {1, 2}}, _rows_in(batch))
            rows += self._keyed(batch, self._keys(batch), enumerate(told))
        return self._finish(step, rows, *measured(self.parts, totals, judged(self.data, "score", rows)))

    def _warn_of_padding(self, batch: NestedMap, found: Mapping[str, Any]) -> None:
        """Warn of metrics of the model that weigh as much as all rows of a batch, of which some only fill it up."""
        weights = batch.get(SAMPLE_WEIGHTS)
        if weights is None or np.all(np.asarray(weights) > 0):
            return
        count = _rows_in(batch) * self.parts.host[1]
        names = [key.removeprefix(WEIGHT) for key, value in found.items() if key.startswith(WEIGHT) and value == count]
        if names and count > 1:
            log.warning(
                f"{self.name}: rows that only pad a batch ({SAMPLE_WEIGHTS} 0) seem to count in "
                f"{', '.join(names)}. Let compute_loss weigh rows by batch.{SAMPLE_WEIGHTS}.",
                once=True,
            )


class DecodeProgram(Program):
    """Decodes one input."""

    folder, prefix, decodes = job_folder.DECODER_OUT, "decoder_out", True

    def __init__(self, *values: Any, **options: Any) -> None:
        super().__init__(*values, **options)
        warn_of_other_ends(self.parts)

    def _do(self, state: SpmdState, step: int) -> Result:
        decoded, processed, rows = Totals(), Totals(), list[tuple[str | None, Mapping[str, Any]]]()
        owners = Owners()
        for index, batch in enumerate(self._batches(step)):
            metrics, _, found = tree_to_host(self.parts.decoding_engine.decode(state, batch, index=index))
            decoded.add(_sums(metrics))
            more, told = self.parts.task.process_decode_out(self.data, found)
            for sums in _talk.gather(_sums(more)):
                processed.add(sums)
            keys = self._keys(batch)
            found_in = owners.of(told, [key is not None for key in keys])
            rows += self._keyed(batch, keys, zip(found_in, map(_as_written, told), strict=True))
        said = {f"decode_metrics/{name}": value for name, value in _means(decoded).items()}
        said |= {f"process_decode_metrics/{name}": value for name, value in _means(processed).items()}
        tags = metric_tags(_means(decoded), decoded.weights(), prefix="decode_metrics")
        tags |= metric_tags(_means(processed), processed.weights(), prefix="process_decode_metrics")
        scores = judged(self.data, "predict", _best(rows))
        tags |= {f"Metrics/{name}": value for name, value in scores.items()}
        return self._finish(step, rows, said | scores, tags)


class InferProgram(Program):
    """Writes the predictions of one input into `output_num_shards` .npz files per process, with one row per example."""

    folder, prefix = job_folder.INFER_OUT, "infer_out"

    def _do(self, state: SpmdState, step: int) -> Result:
        count = self.parts.task.hparams.infer.output_num_shards
        shards: list[list[dict[str, Any]]] = [[] for _ in range(count)]
        total = 0
        for batch in self._batches(step):
            columns = _columns(tree_to_host(self.parts.decoding_engine.predict(state, batch)))
            rows = rows_of(columns, _rows_in(batch))
            left_out = ", ".join(sorted(set(columns) - set(rows[0])))
            if left_out:
                log.warning(
                    f"{self.name}: omitted, because they do not have one row per example: {left_out}.", once=True
                )
            for key, row in zip(self._keys(batch), rows, strict=True):
                if key is not None:
                    shards[total % count].append(dict(row))
                    total += 1
        for index, rows in enumerate(shards):
            self._write(step, index, rows)
        return self._finish(step, [], {"num_rows": float(total)}, {"infer/num_rows": float(total)})

    def _write(self, step: int, index: int, rows: list[dict[str, Any]]) -> None:
        names = rows[0] if rows else {}
        count, process = self.parts.task.hparams.infer.output_num_shards, self.parts.ranks.rank
        name = f"{self.prefix}_{step}_process_{process}-{index:05d}-of-{count:05d}.npz"
        with commit.replacing(io.join(self.parts.folder, self.folder, self.data.name, name), "wb", own=True) as file:
            columns: Any = {key: np.stack([row[key] for row in rows]) for key in names}
            np.savez(file, **columns)


def measured(parts: Parts, totals: Totals, scores: Mapping[str, float]) -> tuple[Result, dict[str, float]]:
    """Return (metrics, tags) of an evaluation; what layers record is only in the tags, averaged over batches."""
    sums = totals.by_name()
    noted = {name.removeprefix(NOTED): sums.pop(name) for name in list(sums) if name.startswith(NOTED)}
    metrics = final_of(parts.task.metrics, with_counts(sums)) | dict(scores)
    tags = metric_tags(metrics, {name: weight for name, (_, weight) in sums.items()}, prefix="Metrics")
    tags |= layer_tags({name: total / weight for name, (total, weight) in noted.items()})
    if "total_loss" in metrics:
        tags["loss"] = metrics["total_loss"]
    return metrics, tags


def judged(data: BaseInput, kind: str, rows: Rows) -> Result:
    """Return the input's metrics of the rows of all processes; {} if it has none, or this is not the first process."""
    if not getattr(data, f"has_{kind}_metrics", False):
        return {}
    parts = _talk.gather([(key, plain(row)) for key, row in rows])
    if world.process_index() != 0:
        return {}
    gathered = [(key, row) for part in parts for key, row in part]
    found: Result = getattr(data, f"{kind}_metrics")(gathered)
    return {name: float(value) for name, value in found.items()}


class Owners:
    """Finds the example of each row that `process_decode_out` gave for the batches of one split."""

    def __init__(self) -> None:
        self._each: int | None = None  # rows per example in the batches so far

    def of(self, told: Sequence[tuple[str, Mapping[str, Any]]], real: Sequence[bool]) -> list[int]:
        """Return the index in the batch of the example of each row that was given for the batch.

        Rows may say it by `row_in_batch`. Otherwise those of an example follow one another, as many for each, and rows
        of padding may be left out.

        Args:
            told: (what the model calls the example, row).
            real: whether each row of the batch is an example, not padding.

        Raises:
            ConfigError: the rows cannot be divided among the examples, or in two ways.
        """
        if all(ROW_IN_BATCH in row for _, row in told):
            return _said([row[ROW_IN_BATCH] for _, row in told], len(real))
        choices = dict.fromkeys([tuple(range(len(real))), tuple(np.flatnonzero(real).tolist())])  # in this order
        ways = [way for way in choices if way and len(told) % len(way) == 0]
        if len(ways) == 2:
            ways = self._likely(ways, [name for name, _ in told])
        if len(ways) != 1:
            problem = f"gave {len(told)} rows for a batch of {len(real)} rows, of which {sum(real)} are examples."
            remedy = f"Say in each row by '{ROW_IN_BATCH}' which row of the batch, from 0, it belongs to."
            raise refusal("process_decode_out", problem, remedy)
        self._each = len(told) // len(ways[0])
        return [ways[0][index // self._each] for index in range(len(told))]

    def _likely(self, ways: Sequence[tuple[int, ...]], names: Sequence[str]) -> list[tuple[int, ...]]:
        """Return which of the ways, with padding and without, the names or the batches before speak for."""
        if any(names):
            return [ways[len(list(groupby(names))) <= len(ways[1])]]
        return [way for way in ways if len(names) // len(way) == self._each]


def _said(owners: list[int], num_rows: int) -> list[int]:
    """Return the indices of examples that rows gave. Raises ConfigError if the batch has fewer rows."""
    wrong = [index for index in owners if not 0 <= index < num_rows]
    if wrong:
        problem = f"gave a row with {ROW_IN_BATCH} {wrong[0]} for a batch of {num_rows} rows."
        raise refusal("process_decode_out", problem, "Count the rows of the batch from 0.")
    return owners


def _as_written(told: tuple[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    return {name: value for name, value in told[1].items() if name != ROW_IN_BATCH}


def _best(rows: Rows) -> Rows:
    """Return the first row, which is the best one, of each key."""
    first: dict[str | None, Mapping[str, Any]] = {}
    for key, row in rows:
        first.setdefault(key, row)
    return list(first.items())


def _rows_in(batch: Mapping[str, Any]) -> int:
    return int(next(np.shape(leaf)[0] for leaf in jax.tree.leaves(dict(batch)) if np.ndim(leaf)))


def _sums(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Convert (mean, weight) of each metric to the sums that `Totals` adds."""
    flat: dict[str, float] = {}
    for name, (mean, weight) in metrics.items():
        total = float(mean) * float(weight) if weight else 0.0  # a mean of nothing may be NaN
        flat |= {f"{SUM}{name}": total, f"{WEIGHT}{name}": float(weight)}
    return flat


def _means(totals: Totals) -> dict[str, float]:
    sums = with_counts(totals.by_name())
    return {name: total / weight if weight else float("nan") for name, (total, weight) in sums.items()}


def _columns(predictions: object) -> Mapping[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(predictions)
    found = {path_name(path) or "output": leaf for path, leaf in leaves}
    return {name: leaf for name, leaf in found.items() if np.ndim(leaf)}
