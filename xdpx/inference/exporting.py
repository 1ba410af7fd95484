"""Export a run: write a staging folder, open it again, compare it with the run, and only then publish it."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

import xdpx
from xdpx.checkpoints import folders, publishing
from xdpx.config.args_file import ARGS_FILE, PREPRO_ARGS, args_text
from xdpx.config.faults import THIS_RUN, ConfigError, Fault, first_line
from xdpx.datasets import word_vocabulary
from xdpx.datasets.evaluation_data import EvaluationData
from xdpx.inference import export_folder, probes, temperature
from xdpx.inference.answers import refuse_without_answer
from xdpx.inference.exported import open_network
from xdpx.inference.formats import Exportable, Format, Network, refusal
from xdpx.inference.plan import InferenceParameters, Input, find_input, make_plan
from xdpx.inference.predictor import Chunk, Predictor
from xdpx.inference.transformers_folder import tokenizer_of
from xdpx.logger import log
from xdpx.processors.samples import Samples
from xdpx.tokenizers import agreement
from xdpx.tokenizers.base import kept_files
from xdpx.utils import commit, io
from xdpx.utils.owners import new_owner_id
from xdpx.utils.progress import format_bytes

LENGTHS = ((12, 3, 7), (1,), (30, 2), (5, 5, 5, 5))
"""Text lengths, in tokens, of batches that differ in rows and lengths; the first is the one that is traced."""
REAL_BATCHES = 4
ROWS_PER_BATCH = 8
TRAINING = "train"
RESOURCES = (agreement.VOCABULARY, agreement.LABELS, word_vocabulary.FILE, agreement.DEFINITION)
"""Files that are needed to read raw text, beside those that a tokenizer keeps."""
INPUTS = "inputs.json"
TIMED = (8, 32)
"""Text lengths in tokens for which the latency is measured, beside the longest."""
MOST_WORDS = 50
LEAST_SPACE = 1 << 16
"""Free bytes of a disk below which an error while a network is written comes of the full disk."""
ANY_NUMBER = float(np.finfo(np.float64).max)
"""Tolerance for a quantised network, which is judged by its scores; NaN and infinity are still refused."""
CALIBRATED_ON = 32
"""Batches of real rows on which quantisation ranges are calibrated."""
UNLIKE_TEXTS = (KeyError, TypeError, ValueError, IndexError, AttributeError)
"""Raised by processors whose samples hold more than texts, when they are given texts alone."""


class Compared(NamedTuple):
    """How much the results of an export differ from those of the run.

    Attributes:
        rows: number of samples that both predicted.
        outputs: largest difference of a network output x, relative to 1 + |x|.
        predictions: largest difference of a probability or a number x, relative to 1 + |x|.
        changed: number of samples whose label changed.
        what: describes the rows, for messages.
    """

    rows: int
    outputs: float
    predictions: float
    changed: int
    what: str


class Trial(NamedTuple):
    """An export that is written but not yet published.

    Attributes:
        kind: how the network was written.
        exportable: what was written.
        predictor: of the run.
        folder: the staging folder, complete.
        facts: its table of contents.
    """

    kind: Format
    exportable: Exportable
    predictor: Predictor
    folder: str
    facts: dict[str, Any]


Judge = Callable[[Trial], list[str]]
"""Measures a trial, adds the results to its facts, and returns lines to print; raises ConfigError to refuse it."""


def export(
    kind: Format,
    options: InferenceParameters,
    out_dir: str,
    *,
    source: str,
    rows: str | None,
    num_rows: int,
    judge: Judge | None = None,
) -> list[str]:
    """Write a run as an export folder, and return lines that report what was written and measured.

    Args:
        kind: how the network is written.
        options: which run.
        out_dir: the folder to create; an earlier export of the same format is replaced.
        source: the config, for messages.
        rows: the rows to compare on: a split of the run's data_dir, or a raw file; None for the validation split.
        num_rows: most rows to compare.
        judge: called last; may still refuse the export.

    Raises:
        ConfigError: the network cannot be written in this format, or gives other results when opened again; nothing
            is left in `out_dir`.
        OSError: the disk failed; nothing is left in `out_dir`.
    """
    plan = make_plan(options.model_copy(update={"engine": "pytorch", "mesh": None, "nproc": None}), source)
    predictor = Predictor(plan, cuda=False, seed=options.seed)
    chunks, what = real_rows(predictor, rows, num_rows, source)
    exportable = exportable_of(predictor, chunks, calibrated=kind.quantise is not None and kind.calibrates)
    with staged(out_dir, {"format": kind.name, "checkpoint": predictor.plan.checkpoint}) as folder:
        facts = _contents(kind, exportable, predictor)
        with told_of_full_disk(folder):
            facts["of_format"] = kind.write(exportable, folder)
        _write_texts(folder, predictor, facts)
        lines = [_size(kind, folder, out_dir, exportable)]
        if not facts["of_format"].get("without_head"):
            network = open_network(folder, facts, threads=None, source=out_dir)
            most = ANY_NUMBER if kind.quantise else kind.most_difference
            answers = answers_rows(predictor, chunks)
            batches = exportable.batches if answers else [*exportable.batches, *_real(predictor, chunks)]
            outputs = compared_outputs(exportable, network, batches, most)
            found = Compared(sum(len(each.samples) for each in chunks), outputs, 0.0, 0, what)
            found = compared(predictor, folder, chunks, found, most) if answers else found
            facts["compared"] = found._asdict()
            lines += [*_difference(facts, found), *_times(exportable, folder, facts)]
        lines += judge(Trial(kind, exportable, predictor, folder, facts)) if judge is not None else []
        _write_contents(folder, facts)
        return lines


# ---- the network


def exportable_of(predictor: Predictor, chunks: Sequence[Chunk], *, calibrated: bool = False) -> Exportable:
    """Return the network of a run, ready to be written.

    Args:
        predictor: of the run.
        chunks: real rows, some of which become example batches.
        calibrated: also read training rows, on which quantisation ranges are calibrated.

    Raises:
        ConfigError: the inputs or outputs of the network are not all tensors, or there is no batch to try it with.
    """
    import torch

    from xdpx.models.pytorch.positional import Positional, output_form

    model, what = predictor.task.model.eval().requires_grad_(False), type(predictor.task.model).__name__
    batches = [*filter(partial(_fits, model), _artificial(predictor)), *islice(_real(predictor, chunks), REAL_BATCHES)]
    if not batches:
        raise refusal(what, "reads nothing that could be followed through it", "Name a raw file: rows.")
    odd = [name for name, each in batches[0].items() if not isinstance(each, torch.Tensor)]
    if odd:
        raise refusal(what, f"reads {odd[0]}, which is not an array")
    with torch.no_grad():
        form = output_form(model(**batches[0]))
    if form is None:
        raise refusal(what, "returns something other than tensors")
    network = Positional(model, list(batches[0])).eval()
    counted = probes.remembered(network, list(batches[0].values()))
    if counted:
        attribute = counted.removeprefix("model.")
        problem = (
            f"returns different outputs for the same input at every call, because its attribute '{attribute}' changes"
        )
        raise refusal(what, problem, "In forward, keep no state for the next call when self.training is false.")
    apart = probes.of_neighbours(network, [list(each.values()) for each in batches])
    if not apart <= probes.MOST_OF_NEIGHBOURS:
        if probes.draws(network, list(batches[0].values())):
            problem = "draws random numbers, so its outputs for the same input differ from call to call"
            raise refusal(what, problem, "In forward, draw none when self.training is false.")
        problem = f"computes different outputs for a row in a batch than alone (they differ by {apart:.1e})"
        remedy = "No row may depend on the others in its batch: no mean over rows, and BatchNorm in evaluation mode."
        raise refusal(what, problem, remedy)
    names = [name for name in form if name is not None]
    return Exportable(
        network, list(batches[0]), names, batches, predictor.plan, predictor.processor, predictor.labels,
        predictor.task.loss, model, form, _calibration(predictor, chunks) if calibrated else [],
    )  # fmt: skip


def _artificial(predictor: Predictor) -> list[Mapping[str, Any]]:
    processor = predictor.processor
    longest = processor.parameters.max_len - processor.num_special
    try:
        return [probes.sample_inputs(processor, each) for each in (*LENGTHS, (longest,))]
    except UNLIKE_TEXTS:
        return []


def _fits(model: Any, given: Mapping[str, Any]) -> bool:
    """Return whether a network accepts an artificial batch."""
    try:
        model(**given)
    except (RuntimeError, *UNLIKE_TEXTS):  # e.g. it needs masked tokens, or texts marked apart
        return False
    return True


def _calibration(predictor: Predictor, chunks: Sequence[Chunk]) -> list[Mapping[str, Any]]:
    """Return batches for calibration: of the training split if it exists, else of `chunks`."""
    try:
        source = find_input(TRAINING, predictor.plan, "rows", THIS_RUN)
        chunks = [*predictor.chunks(source, most=CALIBRATED_ON * ROWS_PER_BATCH)]
    except ConfigError as error:
        if not _is_gone(error):
            raise
        log.warning(
            "the training rows are gone, so ranges are calibrated on the rows that the export is compared on: "
            "its score on them is too good"
        )
    return list(islice(_real(predictor, chunks), CALIBRATED_ON))


def _real(predictor: Predictor, chunks: Sequence[Chunk]) -> Generator[Mapping[str, Any]]:
    """Yield the network inputs of chunks in batches; per chunk, long samples first."""
    import torch

    from xdpx.engines.pytorch.transfer import to_device

    for chunk in chunks:
        if len(chunk.samples):
            for _, batch in EvaluationData(chunk.samples, predictor.processor, batch_size=ROWS_PER_BATCH):
                yield to_device(batch, torch.device("cpu"))["net_input"]


def compared_outputs(
    exportable: Exportable, network: Network, batches: Sequence[Mapping[str, Any]], most: float
) -> float:
    """Return the largest difference between the outputs of an export and the trained network, relative to 1 + |x|.

    Raises:
        ConfigError: it is more than `most`, or the export fails on a batch.
    """
    import torch

    worst = 0.0
    for given in batches:
        shape = tuple(next(iter(given.values())).shape)
        with torch.no_grad():
            wanted = exportable.network(*(given[name] for name in exportable.inputs))
        try:
            found = network({name: each.numpy() for name, each in given.items()})
        except Exception as error:  # each runtime has its own kinds
            problem = f"fails for an input of shape {shape}: {first_line(error).rstrip('.')}"
            raise refusal("What was written", problem) from error
        tensors = wanted if isinstance(wanted, tuple) else (wanted,)
        for name, tensor in zip(exportable.outputs, tensors, strict=True):
            worst = max(worst, probes.difference(found[name], tensor.numpy()))
        if not worst <= most:
            raise refusal("What was written", f"differs by {worst:.1e} for an input of shape {shape}")
    return worst


# ---- rows


def real_rows(predictor: Predictor, name: str | None, most: int, source: str) -> tuple[list[Chunk], str]:
    """Return rows to compare on, as the run reads them: real rows, then odd ones; and a description of them.

    Raises:
        ConfigError: `name` is neither a split nor a file.
    """
    plan = predictor.plan
    wanted, chunks, told = name or str(plan.train.values["valid_subset"]), list[Chunk](), []
    try:
        chunks += predictor.chunks(find_input(wanted, plan, "rows", source), most=most)
        told.append(f"{sum(each.num_rows for each in chunks):,} rows of {wanted}")
    except ConfigError as error:
        if name is not None or not _is_gone(error):
            raise
        told.append(f"no rows of {wanted}, which is gone")
    odd = odd_input(predictor)
    with suppress(ConfigError):  # not every text is a row, e.g. an answer must occur in its context
        chunks += predictor.chunks(odd) if odd is not None else []
        told += [f"{len(odd.rows or ())} odd ones"] if odd is not None else []
    return chunks, ", ".join(told)


def _is_gone(error: ConfigError) -> bool:
    """Return whether all faults of an input are that a file is missing."""
    return all(fault.code == "missing_path" for fault in error.faults)


def odd_input(predictor: Predictor) -> Input | None:
    """Return rows of raw text that are empty, very long or far from ASCII; None if a line of text is not a row."""
    plan = predictor.plan
    if plan.prepro is None or plan.joins_lines or predictor.vocabulary is None:
        return None
    tokens = predictor.vocabulary.tokens
    words = [token for token in tokens if token.isalpha()][:MOST_WORDS]
    rows = probes.odd_rows(predictor.loader, words, predictor.processor.parameters.max_len)
    return Input("odd rows", "odd rows", is_store=False, reading=plan.prepro, rows=rows)


def answers_rows(predictor: Predictor, chunks: Sequence[Chunk]) -> bool:
    """Return whether a model predicts something for single rows: not language models, nor those that give vectors."""
    try:
        refuse_without_answer(predictor)
        for chunk in islice((each for each in chunks if len(each.samples)), 1):
            one = chunk._replace(samples=chunk.samples.take(np.arange(1)), kept=chunk.kept[:1], targets=None)
            predictor.predict(one, alone=True)
    except ConfigError:
        return False
    return True


def compared(predictor: Predictor, folder: str, chunks: Sequence[Chunk], outputs: Compared, most: float) -> Compared:
    """Return how much an export differs from its run over the whole path from raw text to predictions.

    Args:
        predictor: of the run.
        folder: the export; raw text is read with its own vocabulary and preprocessing.
        chunks: rows as the run reads them.
        outputs: the comparison of the network outputs, to be completed.
        most: largest allowed difference of predictions.

    Raises:
        ConfigError: a raw row is encoded or predicted differently, or the loss needs more than the network's outputs.
    """
    again = Predictor(make_plan(InferenceParameters(save_dir=folder), folder))
    rows, worst, changed = 0, 0.0, 0
    for chunk in chunks:
        same = _read_again(again, chunk)
        if not len(chunk.samples):
            continue
        try:
            wanted = predictor.predict(chunk, alone=True)
            every = [again.predict(each, alone=True) for each in _ways(again, same)]
        except AttributeError as error:
            loss = type(predictor.task.loss).__name__
            raise refusal(f"The loss {loss}", f"looks into the network ({error})") from error
        rows += len(chunk.samples)
        floats = [name for name, each in wanted.items() if np.asarray(each).dtype.kind == "f"]
        worst = max([worst, *(probes.difference(found[name], wanted[name]) for name in floats for found in every)])
        if "pred" in wanted:
            apart = [np.reshape(found["pred"] != wanted["pred"], (len(chunk.samples), -1)) for found in every]
            changed += int(np.hstack(apart).any(axis=1).sum())
        if not worst <= most:
            problem = f"differs from the run: predictions for {outputs.what} differ by {worst:.1e}"
            raise refusal("What was written", problem)
    return outputs._replace(rows=rows, predictions=worst, changed=changed)


def _ways(again: Predictor, chunk: Chunk) -> list[Chunk]:
    """Return a chunk with its labels and without, if an export predicts these in two ways: by the loss, and itself."""
    if "target" not in chunk.samples or not again.engine.answers:
        return [chunk]
    kept = {name: column for name, column in chunk.samples.columns.items() if name != "target"}
    return [chunk, chunk._replace(samples=Samples(kept, ids=chunk.samples.ids))]


def _read_again(again: Predictor, chunk: Chunk) -> Chunk:
    """Return the same rows as the export reads them.

    Raises:
        ConfigError: the samples differ.
    """
    if not chunk.rows:  # of a store, which already holds token ids
        return chunk
    given = Input("rows", "rows", is_store=False, reading=again.plan.prepro, rows=chunk.rows)
    parts = list(again.chunks(given))
    same = len(parts) == 1 and np.array_equal(parts[0].kept, chunk.kept)
    for name, column in chunk.samples.columns.items():
        other = parts[0].samples.columns[name] if same else None
        same = same and all(np.array_equal(*each) for each in zip(_flat(column), _flat(other), strict=True))
    if not same:
        problem = "read raw text differently from the run"
        raise refusal("The files that were written", problem, "This is a bug of xdpx: please report it.")
    return parts[0]


def _flat(column: Any) -> list[Any]:
    return [column] if isinstance(column, np.ndarray) else [column.values, column.offsets]


# ---- the folder


@contextmanager
def staged(out_dir: str, facts: Mapping[str, Any], *, replaces: Sequence[str] = ()) -> Generator[str]:
    """Yield a staging folder, and publish it as `out_dir` at the end; after an error nothing has changed.

    Args:
        out_dir: the final folder. Whether it may be replaced is checked just before publishing.
        facts: of its manifest, including its `format`.
        replaces: other formats whose earlier export may be replaced, too.

    Raises:
        ConfigError: `out_dir` holds something that must not be replaced.
    """
    parent, name, owner = io.parent(io.abspath(out_dir)), io.name(io.abspath(out_dir)), new_owner_id()
    folder = publishing.staging_of(parent, name, owner)
    folders.recover_one(parent, name)
    io.makedirs(folder)
    try:
        yield folder
        faults = occupied(out_dir, (facts["format"], *replaces))
        if faults:
            raise ConfigError(THIS_RUN, faults)
        publishing.publish(parent, name, owner, facts=facts, kind=export_folder.SET)
    finally:
        publishing.remove_tree(folder)


@contextmanager
def told_of_full_disk(folder: str) -> Generator[None]:
    """Raise OSError for any error within the block if the disk is full: libraries that write files have their own."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        full = os.strerror(errno.ENOSPC)
        if full in str(error) or io.local_files.usable_space(folder) < LEAST_SPACE:
            raise OSError(errno.ENOSPC, full, folder) from error
        raise


def occupied(out_dir: str, kinds: Sequence[str]) -> list[Fault]:
    """Return why a folder cannot be written as an export, or replaced by one of these formats; [] if it can."""
    place = io.abspath(out_dir)  # resolved as publishing does: 'here/new/..' is 'here' even if there is no 'new'
    if not io.exists(place):
        return []
    if io.isfile(place):
        return [Fault("out_dir", f"'{out_dir}' is a file.", "Choose a new folder.")]
    if not io.listdir(place):
        return []
    earlier = export_folder.written_by_us(place)
    if earlier is None:
        return [
            Fault("out_dir", f"'{out_dir}' contains something that is not a complete export.", "Choose a new folder.")
        ]
    if earlier.get("format") not in kinds:
        problem = f"'{out_dir}' is an export to {earlier.get('format')}."
        return [Fault("out_dir", problem, "Only one of the same format is replaced: choose a new folder.")]
    # A temperature that was fitted for the earlier network goes with it.
    foreign = [name for name in export_folder.foreign_files(place) if name != temperature.FILE_NAME]
    problem = f"'{out_dir}' is an earlier export, but it also contains {', '.join(foreign[:3])}."
    return [Fault("out_dir", problem, "Move that away, or choose a new folder.")] if foreign else []


def _contents(kind: Format, exportable: Exportable, predictor: Predictor) -> dict[str, Any]:
    """Return the table of contents, without the facts of the format and the measurements."""
    known = exportable.processor.parameters
    inputs = [
        {"name": name, "dtype": str(each.numpy().dtype), "dims": each.dim()}
        for name, each in zip(exportable.inputs, exportable.example(), strict=True)
    ]
    values = exportable.plan.train.values
    return {
        "version": export_folder.VERSION, "format": kind.name, "file": kind.file, "xdpx": xdpx.__version__,
        "checkpoint": exportable.plan.checkpoint, "model": values["model"], "loss": values["loss"], "inputs": inputs,
        "outputs": list(exportable.outputs), "form": list(exportable.form), "labels": exportable.labels,
        "columns": list(predictor.task.header()), "max_len": known.max_len,
        "pad_index": exportable.processor.pad_index,
    }  # fmt: skip


def _write_texts(folder: str, predictor: Predictor, facts: Mapping[str, Any]) -> None:
    """Write the files for reading raw text and naming the outputs, then the table of contents."""
    plan = predictor.plan
    for name in RESOURCES:
        found, target = plan.resource(name), io.join(folder, name)
        if found is not None and not io.exists(target):  # the format may have written a fuller one
            io.copy(found, target)
    tokenizer = tokenizer_of(plan.prepro, plan.resource_folder)
    for name, text in (kept_files(tokenizer) if tokenizer is not None else {}).items():
        if not io.exists(io.join(folder, name)):
            commit.write_text(io.join(folder, name), text)
    commit.write_text(io.join(folder, "labels.txt"), "".join(f"{label}\n" for label in predictor.labels or []))
    commit.write_text(io.join(folder, ARGS_FILE), args_text(plan.train))
    if plan.prepro is not None:
        commit.write_text(io.join(folder, PREPRO_ARGS), args_text(plan.prepro))
    names = [each["name"] for each in facts["inputs"]]
    brief = {"inputs": names, "max_len": facts["max_len"], "pad_index": facts["pad_index"]}
    commit.write_text(io.join(folder, INPUTS), json.dumps(brief) + "\n")
    _write_contents(folder, facts)


def _write_contents(folder: str, facts: Mapping[str, Any]) -> None:
    """Write the table of contents, then the manifest of all files, which the folder needs to be opened."""
    text = json.dumps(facts, indent=2, ensure_ascii=False)
    commit.write_text(io.join(folder, export_folder.FILE), text + "\n")
    own = export_folder.SET + commit.SUFFIX
    names = [os.path.relpath(io.join(place, name), folder) for place, _, found in os.walk(folder) for name in found]
    commit.seal(folder, export_folder.SET, sorted(name for name in names if name != own))


def _size(kind: Format, folder: str, out_dir: str, exportable: Exportable) -> str:
    path = io.join(folder, kind.file)
    size = io.size(path) if io.exists(path) else io.size(folder)
    return f"{io.join(out_dir, kind.file)}: {format_bytes(size)}; inputs: {', '.join(exportable.inputs)}"


def _difference(facts: Mapping[str, Any], found: Compared) -> list[str]:
    share = f"outputs differ by at most {found.outputs:.1e}, predictions by {found.predictions:.1e}"
    return [
        f"  compared with {facts['checkpoint'] or 'the initial weights'} on {found.what}:",
        f"    {share}; {found.changed} of {found.rows:,} labels changed",
    ]


def _times(exportable: Exportable, folder: str, facts: Mapping[str, Any]) -> list[str]:
    """Return lines with the latency of one text on one thread, for several lengths."""
    network, processor = open_network(folder, facts, threads=1, source=folder), exportable.processor
    longest, lines = processor.parameters.max_len - processor.num_special, []
    for length in sorted({min(length, longest) for length in (*TIMED, longest)}):
        try:
            one = {name: each.numpy() for name, each in probes.sample_inputs(processor, [length]).items()}
        except UNLIKE_TEXTS:
            break
        time = f"{probes.milliseconds(partial(network, one)):.3f} ms for a text of {length} tokens"
        lines.append(f"  {time}, on one thread (median of {probes.RUNS})")
    return lines
