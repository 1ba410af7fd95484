"""`x-eval`: score a model on splits or files, and print its metrics as tab separated values."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from xdpx.checkpoints import layout
from xdpx.commands import child
from xdpx.config.faults import ConfigError, Fault
from xdpx.config.parameters import param
from xdpx.inference.plan import InferenceParameters, InferencePlan, Input, find_input, make_plan
from xdpx.launch.environment import LaunchKeys, adopt_launch
from xdpx.logger import log
from xdpx.reports.tables import as_text, as_tsv, union_of_keys
from xdpx.utils import io
from xdpx.utils.commit import read_manifest, write_text
from xdpx.utils.distributed_utils import is_master

if TYPE_CHECKING:
    from xdpx.config.loading import Run
    from xdpx.inference.predictor import Predictor

SAME_SCORE = 1e-6
"""Two scores that differ by no more than this count as the same."""


class Evaluate:
    """Compute the metrics of a model, each computed once over a whole input."""

    class Parameters(InferenceParameters):
        """The keys of `x-eval`."""

        valid_subset: str | list[str] = param(
            doc="What to score: splits of data_dir, raw files with labels, .pt files."
        )
        save_to_file: str | None = param(None, doc="File that also gets the scores, as tab separated values.")
        save_mode: Literal["a", "w"] = param(
            "a", doc="How the file is written: a adds to it, w replaces it.", when=("save_to_file", "is not", None)
        )
        max_eval_steps: int | None = param(None, doc="Score only so many batches of each input.", gt=0)
        compare_origin: bool = param(
            False,
            doc="Fail when a metric of the split that training scored differs by more than 1e-6 from the one logged; "
            "other inputs are scored alone.",
        )
        ignore_novel_target: bool = param(False, doc="Score labels that training never saw as class 0.")

        def conflicts(self) -> list[tuple[str, str]]:
            """Refuse a comparison with a training that is not named."""
            found = super().conflicts()
            if self.compare_origin and self.save_dir is None:
                found.append(("compare_origin", "compares with a finished run. Give its save_dir."))
            return found

    def __init__(self, run: Run) -> None:
        self.source = run.source
        self._run = run
        self.parameters: Evaluate.Parameters = run.parameters("command")

    def check(self) -> list[Fault]:
        """Return what can be seen to be wrong before the model is built."""
        try:
            plan = self._plan()
            self._inputs(plan)
        except ConfigError as error:
            return list(error.faults)
        faults = []
        if self.parameters.compare_origin and logged_scores(plan, str(self.parameters.save_dir)) is None:
            problem = "is true, but valid.log.tsv has no row for this checkpoint."
            remedy = "Name a checkpoint that training evaluated."
            faults.append(Fault("compare_origin", problem, remedy, code="missing_path"))
        if not self.parameters.valid_subset:
            faults.append(Fault("valid_subset", "names nothing to score.", "Name splits or files."))
        return [*faults, *self._about_target()]

    def _about_target(self) -> Iterator[Fault]:
        """Refuse to write over anything but scores."""
        target = self.parameters.save_to_file
        if not target:
            return
        if io.isdir(target):
            yield Fault("save_to_file", f"'{target}' is a directory.", "Name a file.")
        elif not io.is_writable(target):
            yield Fault("save_to_file", f"'{target}' cannot be written.", "Choose another place.")
        elif io.isfile(target) and not _holds_scores(target):
            problem = f"'{target}' holds something else than scores."
            yield Fault("save_to_file", problem, "It is not written over: choose another file.")

    def run(self) -> int:
        """Score every input, print the table, keep it where asked for."""
        count = self.parameters.nproc or 1
        if adopt_launch(LaunchKeys(self.parameters.nproc)) == 0 and count > 1:
            return child.together(self._run, count)
        self._score_all()
        return 0

    def _score_all(self) -> None:
        from xdpx.inference.predictor import Predictor

        plan = self._plan()
        inputs = self._inputs(plan)
        predictor = Predictor(plan, cuda=self.parameters.cuda, seed=self.parameters.seed)
        origin = _is_origin(plan) if self.parameters.compare_origin else None
        comparable = [origin is not None and origin(each) for each in inputs]
        rows = [self._row(predictor, each, like_training=like) for each, like in zip(inputs, comparable, strict=True)]
        if not is_master():
            return
        columns = union_of_keys(rows)
        sys.stdout.write(as_tsv(rows, columns))
        sys.stdout.flush()
        if self.parameters.save_to_file:
            self._save(rows, columns)
        if self.parameters.compare_origin:
            for row in (row for row, like in zip(rows, comparable, strict=True) if not like):
                scored = plan.train.values["valid_subset"]
                log.warning(f"compare_origin: training scored '{scored}', not {row['split']}: that is not compared")
            compare([row for row, like in zip(rows, comparable, strict=True) if like], plan, self.parameters.save_dir)

    def _plan(self) -> InferencePlan:
        return make_plan(self.parameters, self.source)

    def _inputs(self, plan: InferencePlan) -> list[Input]:
        wanted = self.parameters.valid_subset
        names = [wanted] if isinstance(wanted, str) else wanted
        return [find_input(name, plan, "valid_subset", self.source) for name in names]

    def _row(self, predictor: Predictor, source: Input, *, like_training: bool) -> dict[str, Any]:
        from xdpx.training.evaluation import class_rows, score

        options = self.parameters
        limit = options.max_eval_steps
        if like_training and limit is None:
            limit = predictor.plan.train.values.get("max_eval_steps")
        batches = predictor.scored_batches(source, most=limit, ignore_novel_target=options.ignore_novel_target)
        loss = predictor.task.loss
        metrics, classes = score(predictor.engine, predictor.state, batches, loss, labels=predictor.labels)
        log.info(f"{source.name}: {predictor.report()}")
        if classes:
            what, rows = class_rows(classes)
            log.info(f"{source.name}, {what}:\n{as_text(rows, list(rows[0]))}".rstrip())
        return {
            **({"config": options.config} if options.config else {}),
            **({"checkpoint": predictor.plan.checkpoint} if predictor.plan.checkpoint else {}),
            "split": source.name,
            **dict(sorted(metrics.items())),
            **log.take_accumulated(),
        }

    def _save(self, rows: list[dict[str, Any]], columns: list[str]) -> None:
        """Write or add the table, whole or not at all. Where the columns changed, a header begins a new part."""
        path = str(self.parameters.save_to_file)
        before = ""
        if self.parameters.save_mode == "a" and io.exists(path):
            with io.open(path, encoding="utf-8") as table:
                before = table.read()
        before += "\n" if before and not before.endswith("\n") else ""
        headers = [line for line in before.splitlines() if "split" in line.split("\t")]
        repeated = bool(headers) and headers[-1] == "\t".join(columns)
        write_text(path, before + as_tsv(rows, columns, header=not repeated), own=False)
        log.info(f"scores kept in {path}")


def _holds_scores(path: str) -> bool:
    """Tell whether a file is empty or begins as x-eval writes it."""
    with io.open(path, "rb") as table:
        first = table.readline(100_000).strip()
    return not first or b"split" in first.split(b"\t")


def logged_scores(plan: InferencePlan, save_dir: str) -> Mapping[str, float] | None:
    """Return what training logged at the step of the plan's checkpoint, None when it did not."""
    from xdpx.reports.run_logs import read_run

    step = layout.step_of(io.name(plan.checkpoint or ""))
    valid = read_run(save_dir, train=False).valid
    rows = [index for index, each in enumerate(valid["step"].tolist()) if each == step]
    return valid.row(rows[-1]) if rows else None


def _is_origin(plan: InferencePlan) -> Callable[[Input], bool]:
    """Return what tells whether an input is the split that training scored: by its store, or the raw file it came from.

    Other data have other scores, which no log holds.
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


def compare(rows: list[dict[str, Any]], plan: InferencePlan, save_dir: str | None) -> None:
    """Compare metrics of the split that training scored with those logged then.

    Raises:
        SystemExit: some differ; the text names them.
    """
    if not rows:
        return
    logged = logged_scores(plan, str(save_dir)) or {}
    differing = [
        f"  {row['split']} {name}: {value:.9g} now, {logged[f'valid_{name}']:.9g} in training"
        for row in rows
        for name, value in row.items()
        if f"valid_{name}" in logged and not math.isclose(value, logged[f"valid_{name}"], abs_tol=SAME_SCORE)
    ]
    if differing:
        header = f"compare_origin: {len(differing)} metrics differ by more than {SAME_SCORE:g} from {save_dir}"
        raise SystemExit("\n".join([header, *differing]))
    log.info("compare_origin: every metric is the one that training logged")
