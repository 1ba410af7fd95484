"""`x-eval`: score a model on splits or files, print its metrics, and write a page that shows its errors."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from xdpx.commands import child
from xdpx.config.faults import ConfigError, Fault
from xdpx.config.parameters import param
from xdpx.config.path_checks import slip_in
from xdpx.datasets.data_files import NOT_PLAIN_TEXT
from xdpx.inference.plan import InferencePlan, Input, PredictingParameters, find_input, make_plan, refuse_idle
from xdpx.inference.session import logged_scores
from xdpx.inference.temperature import temperature_of
from xdpx.launch.environment import LaunchKeys, adopt_launch
from xdpx.logger import log
from xdpx.reports.run_tables import beside
from xdpx.reports.tables import as_text, as_tsv, union_of_keys
from xdpx.utils import io
from xdpx.utils.commit import read_manifest, write_bytes, write_text
from xdpx.utils.distributed_utils import is_master
from xdpx.utils.replacing import alone

if TYPE_CHECKING:
    from xdpx.config.loading import Run
    from xdpx.inference.predictor import Predictor

SAME_SCORE = 1e-6
"""Two scores that differ by at most this much count as equal."""
ROUNDING = 5e-3
"""Difference of a score, as a share of 1 + the score, that another device or precision may explain."""
ENDS = ("low", "high")

Row = dict[str, Any]
"""A row of the table of scores."""


class Evaluate:
    """Compute the metrics of a model, each once over a whole input."""

    class Parameters(PredictingParameters):
        """The keys of `x-eval`."""

        valid_subset: str | list[str] | None = param(
            None,
            doc="What to score: splits of data_dir, raw files with labels, .pt files; null: the valid_subset of "
            "training.",
        )
        save_to_file: str | None = param(None, doc="TSV file to write the scores to.", unique=("save_mode", "is", "w"))
        save_mode: Literal["a", "w"] = param(
            "a", doc="Mode of save_to_file: a appends, w overwrites.", when=("save_to_file", "is not", None)
        )
        max_eval_steps: int | None = param(None, doc="Maximum number of batches to score of each input.", gt=0)
        compare_origin: bool = param(
            False,
            doc="Fail if a metric of the split that training scored differs by more than 1e-6 from the one logged; "
            "other inputs are only scored.",
        )
        page: str | None = param(
            None,
            doc="File of the page (HTML) with classes, confusions, scores by length and the worst errors; null: "
            "<save_dir>/eval/<checkpoint>-<inputs>.html, of an export in <save_dir>.eval; '' writes none.",
            unique=True,
        )
        worst_errors: int = param(20, ge=0, doc="Number of worst errors to show for each input, with their texts.")
        intervals: bool = param(False, doc="Add columns METRIC_low and METRIC_high to the table: 95 % intervals.")
        print_json: bool = param(False, doc="Print one JSON object with everything, on one line, instead of the table.")
        ignore_novel_target: bool = param(
            False, doc="Score labels that are not in training as class 0; a regression knows every number."
        )

        def conflicts(self) -> list[tuple[str, str]]:
            """Refuse compare_origin without save_dir, or with a temperature."""
            found = super().conflicts()
            if self.compare_origin and self.save_dir is None:
                found.append(("compare_origin", "compares with a finished run. Give its save_dir."))
            if self.compare_origin and self.temperature is not None:
                found.append(("temperature", "was not used in training. Remove it, or compare_origin."))
            return found

    def __init__(self, run: Run) -> None:
        self.source = run.source
        self._run = run
        self.parameters: Evaluate.Parameters = run.parameters("command")

    def check(self) -> list[Fault]:
        """Return the faults that can be found before the model is built."""
        try:
            plan = self._plan()
            self._inputs(plan)
            temperature_of(self.parameters, plan, self.source)
        except ConfigError as error:
            return list(error.faults)
        faults = []
        if self.parameters.compare_origin and logged_scores(plan, str(self.parameters.save_dir)) is None:
            problem = "is true, but valid.log.tsv has no row for this checkpoint."
            remedy = "Name a checkpoint that training evaluated."
            faults.append(Fault("compare_origin", problem, remedy, code="missing_path"))
        if self.parameters.valid_subset in ("", []):
            faults.append(Fault("valid_subset", "names nothing to score.", "Name splits or files."))
        return [*faults, *self._about_target()]

    def _about_target(self) -> Iterator[Fault]:
        """Refuse to overwrite files that contain no scores or no page."""
        page = self.parameters.page
        if page and (io.isdir(page) or not io.is_writable(page)):
            yield Fault("page", f"'{page}' cannot be written as a file.", "Name another file, such as eval.html.")
        elif page and slip_in(page)[0]:
            yield Fault("page", *slip_in(page))
        elif page and io.isfile(page) and not _holds_page(page):
            yield Fault("page", f"'{page}' contains something other than a report.", "Choose another file.")
        target = self.parameters.save_to_file
        if not target:
            return
        if io.isdir(target):
            yield Fault("save_to_file", f"'{target}' is a directory.", "Name a file.")
        elif not io.is_writable(target):
            yield Fault("save_to_file", f"'{target}' cannot be written.", "Choose another place.")
        elif slip_in(target)[0]:
            yield Fault("save_to_file", *slip_in(target))
        elif target.lower().endswith(NOT_PLAIN_TEXT):
            problem = f"'{target}' would be tab-separated text, despite its ending."
            yield Fault("save_to_file", problem, "Give a name such as scores.tsv.")
        elif io.isfile(target) and not _holds_scores(target):
            problem = f"'{target}' contains something other than scores."
            yield Fault("save_to_file", problem, "It is not overwritten: choose another file.")

    def run(self) -> int:
        """Score every input, print the table, and write it if asked for."""
        count = self.parameters.nproc or 1
        if adopt_launch(LaunchKeys(self.parameters.nproc)) == 0 and count > 1:
            return child.run_in_processes(self._run, count)
        self._score_all()
        return 0

    def _score_all(self) -> None:
        from xdpx.inference.predictor import Predictor

        plan = self._plan()
        inputs = self._inputs(plan)
        temperature = temperature_of(self.parameters, plan, self.source)
        predictor = Predictor(plan, cuda=self.parameters.cuda, seed=self.parameters.seed, temperature=temperature)
        plan = predictor.plan
        _tell_of_batch_size(plan, predictor.task.loss.within_batch)
        origin = _is_origin(plan) if self.parameters.compare_origin else None
        comparable = [origin is not None and origin(each) for each in inputs]
        found = [
            self._scored(predictor, each, like_training=like) for each, like in zip(inputs, comparable, strict=True)
        ]
        rows = [row for row, _ in found]
        if not is_master():
            return
        if plan.exact:
            log.info(predictor.cost_of_exact())
        columns = union_of_keys(rows)
        told = self._told(plan, [report for _, report in found])
        sys.stdout.write(f"{as_json(told)}\n" if self.parameters.print_json else as_tsv(rows, columns))
        sys.stdout.flush()
        if self.parameters.save_to_file:
            self._save(rows, columns)
        if told["page"]:
            self._draw(told)
        if self.parameters.compare_origin:
            self._compare(predictor, inputs, rows, comparable)
        elif self._should_be_as_logged(predictor):
            _tell_of_others(plan, str(self.parameters.save_dir), inputs, rows)

    def _should_be_as_logged(self, predictor: Predictor) -> bool:
        """Return whether scores of the split that training evaluated should be those it logged, up to rounding."""
        plan, options = predictor.plan, self.parameters
        if options.save_dir is None or plan.exported is not None or plan.given or predictor.compares_rows:
            return False
        return (options.temperature, options.max_eval_steps, plan.train.values.get("max_eval_steps")) == (None,) * 3

    def _compare(
        self, predictor: Predictor, inputs: Sequence[Input], rows: Sequence[Row], comparable: Sequence[bool]
    ) -> None:
        """Compare the scores of each input that training also evaluated with those in its log.

        Raises:
            SystemExit: some metrics differ; the text lists them with possible causes.
        """
        from xdpx.commands.origin_differences import in_words, suspects

        plan, folder = predictor.plan, str(self.parameters.save_dir)
        different, lines = list[Input](), list[str]()
        for each, row, like in zip(inputs, rows, comparable, strict=True):
            if not like:
                scored = plan.train.values["valid_subset"]
                log.warning(f"compare_origin: training scored '{scored}', not {row['split']}, so it is not compared")
                continue
            differing = compare([row], plan, folder)
            if differing:
                different.append(each)
                lines += differing
            else:
                log.info(f"compare_origin: {row['split']}: every metric equals the one that training logged")
        if different:  # the causes are searched once, since they concern the run
            found = [*suspects(predictor, different[0], folder, max_eval_steps=self.parameters.max_eval_steps)]
            header = f"compare_origin: {len(lines)} metrics differ by more than {SAME_SCORE:g} from {folder}"
            raise SystemExit("\n".join([header, *lines, *in_words(found)]))

    def _plan(self) -> InferencePlan:
        return make_plan(self.parameters, self.source)

    def _inputs(self, plan: InferencePlan) -> list[Input]:
        wanted = self.parameters.valid_subset
        wanted = str(plan.train.values["valid_subset"]) if wanted is None else wanted
        names = [wanted] if isinstance(wanted, str) else wanted
        inputs = [find_input(name, plan, "valid_subset", self.source) for name in names]
        refuse_idle(plan, inputs, self.source)
        return inputs

    def _scored(
        self, predictor: Predictor, source: Input, *, like_training: bool
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the row of one input for the table, and on the first process its report for page and JSON."""
        from xdpx.inference.scored import split_report
        from xdpx.reports.evaluation_page import in_words
        from xdpx.tasks.scoring import class_rows, score_placed

        options = self.parameters
        limit = options.max_eval_steps
        if like_training and limit is None:
            limit = predictor.plan.train.values.get("max_eval_steps")
        batches = predictor.placed_batches(source, most=limit, ignore_novel_target=options.ignore_novel_target)
        (metrics, classes), gathered, places = score_placed(
            predictor.engine, predictor.state, batches, predictor.task.loss, labels=predictor.labels
        )
        log.info(f"{source.name}: {predictor.report(source)}")
        row: dict[str, Any] = {
            **({"config": options.config} if options.config else {}),
            **({"checkpoint": predictor.plan.checkpoint} if predictor.plan.checkpoint else {}),
            "split": source.name,
        }
        row |= beside(row, dict(sorted(metrics.items())))
        row |= beside(row, log.take_accumulated())
        if not is_master():
            return row, {}
        if classes:
            what, rows = class_rows(classes)
            log.info(f"{source.name}, {what}:\n{as_text(rows, list(rows[0]))}".rstrip())
        report = split_report(
            predictor, source, metrics, classes, gathered, places,
            most=options.worst_errors, ignore_novel_target=options.ignore_novel_target,
        )  # fmt: skip
        words = in_words(report)
        if words:
            log.info(words)
        if options.intervals:
            ends = {name: each for name, each in sorted(report["intervals"].items()) if name in row}
            row |= {f"{name}_{end}": each[place] for name, each in ends.items() for place, end in enumerate(ENDS)}
        return row, report

    def _told(self, plan: InferencePlan, reports: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the result in the form that `print_json` prints."""
        options, page = self.parameters, self.parameters.page
        if page is None:
            page = _place_of_page(plan, str(options.save_dir), reports) if options.save_dir else ""
        if page and not io.is_writable(page):
            log.warning(f"no page is written: {page} cannot be. Name another place: page=FILE.")
            page = ""
        return {
            "format": 1,
            "save_dir": options.save_dir,
            "config": options.config,
            "checkpoint": plan.checkpoint,
            "temperature": temperature_of(options, plan, self.source),
            "page": page or None,
            "inputs": reports,
        }

    def _draw(self, told: Mapping[str, Any]) -> None:
        """Write the page, and beside it pictures of the confusion matrix and the calibration of each input."""
        from xdpx import __version__
        from xdpx.reports.evaluation_page import sections
        from xdpx.reports.page import render
        from xdpx.reports.pictures import confusion_picture, reliability_picture

        page, own = str(told["page"]), self.parameters.page is None
        of = told["save_dir"] or told["config"]
        facts = {"checkpoint": told["checkpoint"] or "none: initial weights",
                 "made": f"{datetime.now().astimezone():%Y-%m-%d %H:%M %Z} by xdpx {__version__}"}  # fmt: skip
        if told["temperature"] != 1.0:
            facts["temperature"] = f"logits divided by {told['temperature']:.4g}"
        io.makedirs(io.parent(page), exist_ok=True)
        for report, name in zip(told["inputs"], _names_of(told["inputs"]), strict=True):
            title = f"{name}, {report['rows']:,} rows"
            stem = f"{page.removesuffix('.html')}.{name}" if len(told["inputs"]) > 1 else page.removesuffix(".html")
            if report["confusion"] is not None:
                table = report["confusion"]
                picture = confusion_picture(table["labels"], table["counts"], title, "png")
                write_bytes(f"{stem}.confusion.png", picture, own=own)
            if report["calibration"] is not None:
                write_bytes(
                    f"{stem}.reliability.png", reliability_picture(report["calibration"], title, "png"), own=own
                )
        write_text(page, render(f"Scores of {of}", facts, sections(told["inputs"])), own=own)
        log.info(f"report: {page}")

    def _save(self, rows: list[dict[str, Any]], columns: list[str]) -> None:
        """Write or append the table, atomically. If the columns changed, a new header is written first."""
        path = str(self.parameters.save_to_file)
        with alone(path):  # runs of a loop may add to it at the same time
            before = ""
            if self.parameters.save_mode == "a" and io.exists(path):
                with io.open(path, encoding="utf-8") as table:
                    before = table.read()
            before += "\n" if before and not before.endswith("\n") else ""
            headers = [line for line in before.splitlines() if "split" in line.split("\t")]
            repeated = bool(headers) and headers[-1] == "\t".join(columns)
            write_text(path, before + as_tsv(rows, columns, header=not repeated), own=False)
        log.info(f"scores written to {path}")


def _holds_scores(path: str) -> bool:
    """Return whether a file is empty or begins with a header of x-eval."""
    with io.open(path, "rb") as table:
        first = table.readline(100_000).strip()
    return not first or b"split" in first.split(b"\t")


def _holds_page(path: str) -> bool:
    """Return whether a file is empty or begins as a page does."""
    with io.open(path, "rb") as page:
        return bool(page.read(20).lower().strip() in {b"", b"<!doctype html>\n<html"[:20]})


def _place_of_page(plan: InferencePlan, save_dir: str, reports: list[dict[str, Any]]) -> str:
    """Return the default path of the page: in the run's folder, named after the checkpoint and the inputs.

    An export is replaced as a whole by the next one, so its pages are written beside it.
    """
    weights = io.name(plan.checkpoint or "initial").rpartition(".")[0] or "initial"
    folder = f"{io.abspath(save_dir)}.eval" if plan.exported else io.join(save_dir, "eval")
    return io.join(folder, f"{_cut('-'.join([weights, *(_as_name(each['name']) for each in reports)]), 120)}.html")


def _as_name(text: str) -> str:
    """Return the name of an input in a form that can be part of a file name."""
    return "".join(letter if letter.isalnum() or letter in "._" else "_" for letter in io.name(text))


def _names_of(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a name for the pictures of each input; inputs of the same name in different folders are numbered."""
    found: list[str] = []
    for number, report in enumerate(reports, 1):
        name = _cut(_as_name(report["name"]), 100)
        found.append(f"{name}-{number}" if name in found else name)
    return found


def _cut(text: str, most: int) -> str:
    """Return a text of at most so many bytes: systems allow 255 in the name of a file, in which 汉 is three."""
    return text.encode()[:most].decode(errors="ignore")


def as_json(value: object) -> str:
    """Return JSON on one line; numbers that are NaN or infinite, which JSON cannot hold, become null."""
    return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False)


def _finite(value: object) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _finite(part) for name, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value


def _is_origin(plan: InferencePlan) -> Callable[[Input], bool]:
    """Return a function that decides whether an input is the split that training evaluated, by its store or raw file.

    Only for that split does the log hold scores.
    """
    from xdpx.datasets.data_files import splits
    from xdpx.datasets.store import SUFFIXES

    scored, raw = str(plan.train.values["valid_subset"]), []
    manifest = read_manifest(plan.data_dir, scored)
    if manifest is not None and isinstance(manifest.facts.get("source"), Mapping):
        raw = [str(manifest.facts["source"].get("path"))]
    elif plan.prepro is not None:
        with suppress(ConfigError):  # the raw files may be gone
            raw = [splits(plan.prepro.values["data_source"], plan.prepro.values["data_files"]).get(scored, "")]
    stores = [io.join(plan.data_dir, scored + suffix) for suffix in SUFFIXES.values()]
    origins = {io.abspath(path) for path in (*stores, *raw) if path}
    return lambda source: io.abspath(source.path) in origins


def _tell_of_batch_size(plan: InferencePlan, names: Sequence[str]) -> None:
    """Log metrics that depend on which rows share a batch, unless batches are as large as in training."""
    trained = plan.trained_batch_size
    if names and trained not in {None, plan.batch_size}:
        log.warning(
            f"{', '.join(names)}: computed among the rows of a batch, so comparable only with batches as large: "
            f"batch_size is {plan.batch_size} here and was {trained} in training"
        )


def _tell_of_others(plan: InferencePlan, save_dir: str, inputs: Sequence[Input], rows: Sequence[Row]) -> None:
    """Warn if training logged other scores for this checkpoint, so that the model is not the one that it chose."""
    is_origin = _is_origin(plan)
    like = [row for each, row in zip(inputs, rows, strict=True) if is_origin(each)]
    lines = compare(like, plan, save_dir, rounding=ROUNDING)
    if lines:
        text = "\n".join(lines)
        log.warning(
            f"training logged other scores for this checkpoint:\n{text}\nTo find the cause: compare_origin=true"
        )


def compare(rows: Sequence[Row], plan: InferencePlan, save_dir: str, *, rounding: float = 0.0) -> list[str]:
    """Return a line for each metric that differs from the one that training logged.

    Args:
        rows: of the table of scores.
        plan: of the checkpoint that was scored.
        save_dir: of its run.
        rounding: what may differ beyond SAME_SCORE, as a share of 1 + the score.
    """
    logged = logged_scores(plan, save_dir) or {}
    return [
        f"  {row['split']} {name}: {value:.9g} now, {logged[f'valid_{name}']:.9g} in training"
        for row in rows
        for name, value in row.items()
        if f"valid_{name}" in logged and not _is_near(value, logged[f"valid_{name}"], rounding)
    ]


def _is_near(value: float, logged: float, rounding: float) -> bool:
    if math.isnan(value) and math.isnan(logged):
        return True
    return math.isclose(value, logged, abs_tol=SAME_SCORE + rounding * (1 + abs(logged)))
