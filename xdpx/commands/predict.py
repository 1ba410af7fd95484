"""`x-pred`: predict files with a model, row by row, in bounded memory."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xdpx.commands import child
from xdpx.config.faults import ConfigError, Fault, wrong_return
from xdpx.config.parameters import param
from xdpx.config.path_checks import slip_in
from xdpx.datasets.data_files import NOT_PLAIN_TEXT, splits
from xdpx.inference.plan import InferencePlan, Input, PredictingParameters, find_input, make_plan, refuse_idle
from xdpx.inference.predicted_file import GIVEN, SEPARATOR
from xdpx.inference.temperature import temperature_of
from xdpx.launch.environment import LaunchKeys, adopt_launch
from xdpx.logger import log
from xdpx.runs import run_folder
from xdpx.utils import commit, io
from xdpx.utils.commit import replacing, sweep_beside
from xdpx.utils.distributed_utils import is_master

if TYPE_CHECKING:
    from xdpx.config.loading import Run
    from xdpx.inference.predictor import Chunk, Predictor
    from xdpx.logger import ProgressBar
    from xdpx.losses.base import Loss

OTHER_TEXT = (".csv", ".json", ".jsonl")
"""Endings that promise another layout of text, in which a reader may find one column, or none."""


SMALLEST_PROBABILITY = 1e-38
"""Lower bound of a probability before its logarithm is taken."""


class Predict:
    """Write the predictions of a model beside the rows of its input."""

    class Parameters(PredictingParameters):
        """The keys of `x-pred`."""

        predict_file_map: dict[str, str] = param(
            doc="Input and output files, such as {raw/test.tsv: out.tsv}; inputs are raw files, labelled or not, "
            "splits or .pt files.",
            unique=True,
        )
        distill: bool = param(
            False, doc="Write training data for distillation: a column of logits before the label, no header."
        )
        header: bool = param(True, doc="Write a header with the column names.", when=("distill", "is", False))
        binary: bool = param(False, doc="Write arrays that torch.load reads, instead of text.")
        max_predict: int | None = param(None, doc="Maximum number of rows to predict of each file.", gt=0)
        concat_origin: bool = param(
            True, doc="Write the original columns before the predictions: all, or those that `fields` names."
        )

        def conflicts(self) -> list[tuple[str, str]]:
            """Refuse settings with which rows and predictions could not be written side by side."""
            found = super().conflicts()
            if not self.predict_file_map:
                found.append(("predict_file_map", "is empty. Give input: output."))
            targets: defaultdict[str, list[str]] = defaultdict(list)
            for target in self.predict_file_map.values():
                targets[_place(target)].append(target)
            found += [("predict_file_map", f"writes '{t[-1]}' twice.") for t in targets.values() if len(t) > 1]
            if self.concat_origin and self.skip_bad_lines:
                found.append(("concat_origin", "contradicts skip_bad_lines: rows would be missing. Set one to false."))
            if self.concat_origin and self.binary:
                found.append(("concat_origin", "contradicts binary: arrays cannot contain text. Set it to false."))
            if self.distill and not self.binary and not self.concat_origin:
                found.append(("concat_origin", "is false, but distill writes the texts. Set it to true."))
            return found

    def __init__(self, run: Run) -> None:
        self.source = run.source
        self._run = run
        self.parameters: Predict.Parameters = run.parameters("command")

    def check(self) -> list[Fault]:
        """Return the faults that can be found before the model is built."""
        try:
            plan = make_plan(self.parameters, self.source)
            jobs = self._jobs(plan)
            temperature_of(self.parameters, plan, self.source)
        except ConfigError as error:
            return list(error.faults)
        inputs = {_place(each.path) for each, _ in jobs}
        return [fault for each, target in jobs for fault in self._faults(plan, each, target, inputs)]

    def _faults(self, plan: InferencePlan, source: Input, target: str, inputs: set[str]) -> Iterator[Fault]:
        key = "predict_file_map"
        if source.is_store and self.parameters.concat_origin:
            problem = f"'{source.name}' is preprocessed: it no longer has its texts."
            yield Fault(key, problem, "Give the raw file, or concat_origin: false.")
        if not source.is_store and plan.joins_lines:
            loader = plan.prepro.values["loader"] if plan.prepro else ""
            problem = (
                f"'{source.name}' is read by the loader '{loader}', which joins lines, "
                "so that single lines have no prediction."
            )
            yield Fault(key, problem, "Use x-eval to score such a file.")
        if io.isdir(target) or not io.is_writable(target):
            yield Fault(key, f"'{target}' cannot be written.", "Choose another file.")
        elif slip_in(target)[0]:
            yield Fault(key, *slip_in(target))
        if _place(target) in inputs:
            yield Fault(key, f"would replace its input '{target}'.", "Choose another file.")
        elif _belongs_to_a_model(target):
            yield Fault(key, f"'{target}' is a file of a run, an export or its data.", "Choose another file.")
        elif _is_raw_data(plan, target):
            yield Fault(key, f"'{target}' is raw data that the run was trained or scored on.", "Choose another file.")
        if not self.parameters.binary and target.lower().endswith(NOT_PLAIN_TEXT):
            problem = f"'{target}' would be tab-separated text, despite its ending."
            yield Fault(key, problem, "Give a name such as out.tsv.")

    def run(self) -> int:
        """Predict every file, one after another."""
        count = self.parameters.nproc or 1
        if adopt_launch(LaunchKeys(self.parameters.nproc)) == 0 and count > 1:
            return child.run_in_processes(self._run, count)
        self._predict_all()
        return 0

    def _predict_all(self) -> None:
        from xdpx.inference.predictor import Predictor

        plan = make_plan(self.parameters, self.source)
        jobs = self._jobs(plan)
        temperature = temperature_of(self.parameters, plan, self.source)
        predictor = Predictor(plan, cuda=self.parameters.cuda, seed=self.parameters.seed, temperature=temperature)
        if not self.parameters.binary and plan.train.values.get("several_labels"):
            warn_of_commas(predictor.labels or ())
        for each, target in jobs:
            if not is_master():  # other processes only compute their part of the predictions; the first one writes
                for chunk in predictor.chunks(each, most=self.parameters.max_predict):
                    if len(chunk.samples):
                        predictor.predict(chunk)
                continue
            if not self.parameters.binary and target.lower().endswith(OTHER_TEXT):
                log.warning(f"{target} is written as tab-separated text, despite its ending")
            sweep_beside(interrupted_path(target))
            rows = self._predict(predictor, each, target)
            log.info(f"{each.name}: {rows} rows predicted into {target}, {predictor.report(each)}")
        if is_master() and plan.exact:
            log.info(predictor.cost_of_exact())

    def _jobs(self, plan: InferencePlan) -> list[tuple[Input, str]]:
        wanted = self.parameters.predict_file_map
        inputs = [find_input(name, plan, "predict_file_map", self.source) for name in wanted]
        refuse_idle(plan, inputs, self.source)
        return list(zip(inputs, wanted.values(), strict=True))

    def _predict(self, predictor: Predictor, source: Input, target: str) -> int:
        """Predict one input and return the number of its rows."""
        options = self.parameters
        most = options.max_predict
        chunks = predictor.chunks(source, most=most)
        total = predictor.count_rows(source)
        total = total if most is None or total is None else min(most, total)
        bar: ProgressBar[Any]
        with log.progress(total=total, what=source.name, unit="row") as bar:
            if options.binary:
                return _write_arrays(_counted(chunks, bar), predictor, target, logits=options.distill)
            with kept_when_interrupted(target) as out:
                writer = TextWriter(out, predictor, source, options)
                for chunk in chunks:
                    writer.write(chunk)
                    bar.update(chunk.num_rows)
            return writer.num_rows


def warn_of_commas(labels: Sequence[str]) -> None:
    """Warn of labels with a comma in them, which also stands between the labels of a row."""
    doubtful = [label for label in labels if SEPARATOR in label]
    if doubtful:
        problem = f"the label {doubtful[0]!r} contains a comma, which also stands between the labels of a row"
        log.warning(f"pred: {problem}. Read them from prob, which is in the order of target_map.txt, or rename labels.")


def _counted(chunks: Iterable[Chunk], bar: Any) -> Iterator[Chunk]:
    for chunk in chunks:
        yield chunk
        bar.update(chunk.num_rows)


def interrupted_path(target: str) -> str:
    """Return the path of the file for predictions kept after an interruption."""
    stem, extension = os.path.splitext(target)
    return f"{stem}.interrupted{extension}"


@contextmanager
def kept_when_interrupted(target: str, mode: str = "w") -> Generator[IO[Any]]:
    """Open a file that replaces `target` if the block ends without an error.

    After Ctrl-C what was written so far is kept beside it, as `<name>.interrupted<extension>`, and the target does not
    change. After any other error nothing is kept.
    """
    beside = interrupted_path(target)
    interruption = None
    with replacing(beside, mode, newline="\n" if mode == "w" else None) as out:
        try:
            yield out
        except KeyboardInterrupt as error:
            interruption = error
    if interruption is not None:
        log.warning(f"interrupted: what was predicted so far is in {beside}")
        raise interruption
    io.move(beside, target)


class TextWriter:
    """Writes chunks of predicted rows as tab separated values.

    Args:
        out: the file to write to.
        predictor: computes the predictions.
        source: the input, for the names of its columns.
        options: header, concat_origin, distill.
    """

    def __init__(self, out: IO[str], predictor: Predictor, source: Input, options: Predict.Parameters) -> None:
        self.num_rows = 0
        self._out = out
        self._predictor = predictor
        self._source = source
        self._options = options
        self._header_due = options.header and not options.distill

    def write(self, chunk: Chunk) -> None:
        """Predict a chunk and write its rows, in the order of the file."""
        if self._header_due:
            self._header_due = False
            self._write_cells(self._header(chunk))
        predicted = self._cells(chunk)
        blank = [""] * (2 if self._options.distill else len(self._predictor.task.header()))
        # With skip_bad_lines bad rows are left out; else every row is kept, with blank cells if it gave no sample.
        every = range(chunk.num_rows)
        kept = list(dict.fromkeys(chunk.kept.tolist())) if self._options.skip_bad_lines else every
        for index in kept:
            row = chunk.rows[index] if chunk.rows else []
            cells = predicted.get(index, blank)
            self._write_cells(self._joined(row, cells, labelled=chunk.labelled))
        self.num_rows += len(kept)

    def _cells(self, chunk: Chunk) -> dict[int, list[str]]:
        """Return {row: its predicted cells}, without rows that gave no sample."""
        if not len(chunk.samples):
            return {}
        predictions = self._predictor.predict(chunk)
        rows = list(self._predictor.task.rows(predictions, self._predictor.labels))
        if len(rows) != len(chunk.kept):
            found = f"{len(rows)} rows for {len(chunk.kept)} samples"
            raise wrong_return("loss", self._predictor.task.loss, "rows", found, "Yield one for each sample, in order.")
        if self._options.distill:
            logits = logits_of(predictions, self._predictor.task.loss).tolist()
            rows = [[str(values), label] for values, (label, *_) in zip(logits, rows, strict=True)]
        return dict(zip(chunk.kept.tolist(), rows, strict=True))

    def _joined(self, row: list[str], cells: list[str], *, labelled: bool) -> list[str]:
        if self._options.distill:
            texts, label = (row[:-1], row[-1]) if labelled else (row, cells[-1])
            return [*texts, *cells[:-1], label]
        return [*row, *cells] if self._options.concat_origin else cells

    def _header(self, chunk: Chunk) -> list[str]:
        added: list[str] = self._predictor.task.header()
        if not self._options.concat_origin:
            return added
        names = []
        for name in self._predictor.column_names(self._source, chunk):
            if name in added:  # such as `answer` of questions: of two columns, pandas would call the second answer.1
                log.info(f"{self._source.name}: its column '{name}' is written as '{GIVEN}{name}'")
            names.append(f"{GIVEN}{name}" if name in added else name)
        return [*names, *added]

    def _write_cells(self, cells: Iterable[str]) -> None:
        self._out.write("\t".join(map(_clean, cells)) + "\n")


def logits_of(predictions: dict[str, Any], loss: Loss) -> Any:
    """Return the logits of the model, or computed from its probabilities: logarithms, or log-odds for sigmoids."""
    if "logits" in predictions:
        return np.asarray(predictions["logits"], dtype=np.float64).round(6)
    prob = np.asarray(predictions["prob"], dtype=np.float64)
    if loss.asks_each_class:  # by sigmoids, not one softmax
        return (_logarithm(prob) - _logarithm(1.0 - prob)).round(6)
    return _logarithm(prob).round(6)


def _logarithm(prob: NDArray[Any]) -> Any:
    return np.log(np.maximum(prob, SMALLEST_PROBABILITY))


def _place(path: str) -> str:
    """Return the one name of a file, however it is written and by whatever links it is reached."""
    place = io.abspath(path)
    return os.path.realpath(place) if io.islocal(place) else place


def _clean(cell: str) -> str:
    """Replace tabs and line ends in a cell by spaces."""
    if "\t" in cell or "\n" in cell or "\r" in cell:
        return cell.replace("\t", " ").replace("\r\n", " ").replace("\n", " ").replace("\r", " ")
    return cell


def _write_arrays(chunks: Iterable[Chunk], predictor: Predictor, target: str, *, logits: bool) -> int:
    """Write {name: tensor} with a row per predicted sample, and `row`, its index in the file. Return the row count.

    Texts are left out: no tensor holds them.
    """
    import torch

    from xdpx.checkpoints.trusted import save_tensors

    parts: defaultdict[str, list[Any]] = defaultdict(list)
    first = 0
    with kept_when_interrupted(target, "wb") as out:
        try:
            for chunk in chunks:
                arrays = predictor.predict(chunk) | {"row": chunk.kept + first}
                if logits:
                    arrays["logits"] = logits_of(arrays, predictor.task.loss)
                for name, values in arrays.items():
                    parts[name].append(values)
                first += chunk.num_rows
        finally:
            arrays = {name: np.concatenate(values) for name, values in parts.items()}
            tensors = {name: torch.from_numpy(each) for name, each in arrays.items() if each.dtype != object}
            save_tensors(tensors, out)
    return first


def _belongs_to_a_model(path: str) -> bool:
    """Return whether a file is one of a run, an export or preprocessed data."""
    folder, name = io.parent(io.abspath(path)), io.name(path)
    manifests = (commit.read_manifest(folder, each) for each in commit.manifests(folder))
    if any(name in manifest.files for manifest in manifests if manifest is not None):
        return True
    return io.exists(path) and run_folder.is_own(name) and run_folder.content(folder) == "run"


def _is_raw_data(plan: InferencePlan, path: str) -> bool:
    """Return whether an existing file is one that a split of the run's data was preprocessed from."""
    if plan.prepro is None or not io.exists(path):
        return False
    try:
        found = splits(plan.prepro.values["data_source"], plan.prepro.values["data_files"])
    except (ConfigError, OSError):  # the raw data are gone, or a database
        return False
    known = plan.train.values["data_size"]  # the pattern may also match predictions of earlier
    return any(_place(raw) == _place(path) for split, raw in found.items() if split in known)
