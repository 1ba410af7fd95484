"""`x-eval`: score a model on splits or files, and print its metrics as tab separated values."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

from xdpx.checkpoints import layout
from xdpx.config.faults import ConfigError, Fault
from xdpx.config.parameters import param
from xdpx.inference.plan import InferenceParameters, Input, Plan, find_input, make_plan
from xdpx.logger import log
from xdpx.reports.tables import as_tsv, union_of_keys
from xdpx.utils import io
from xdpx.utils.commit import write_text

if TYPE_CHECKING:
    from xdpx.config.loading import Run
    from xdpx.inference.predictor import Predictor

SAME_SCORE = 1e-6
"""Two scores that differ by no more than this count as the same."""


class Evaluate:
    """Give the metrics of a model, each computed once over a whole input."""

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
            False, doc="Fail when a metric differs by more than 1e-6 from the one logged in training."
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
        self.parameters: Evaluate.Parameters = run.parameters("command")

    def check(self) -> list[Fault]:
        """Give what can be seen to be wrong before the model is built."""
        try:
            plan = self._plan()
            self._inputs(plan)
        except ConfigError as error:
            return list(error.faults)
        faults = []
        if self.parameters.compare_origin and _logged_scores(plan, str(self.parameters.save_dir)) is None:
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

    def run(self) -> None:
        """Score every input, print the table, keep it where asked for."""
        from xdpx.inference.predictor import Predictor

        plan = self._plan()
        inputs = self._inputs(plan)
        predictor = Predictor(plan, cuda=self.parameters.cuda, seed=self.parameters.seed)
        rows = [self._row(predictor, each) for each in inputs]
        columns = union_of_keys(rows)
        sys.stdout.write(as_tsv(rows, columns))
        sys.stdout.flush()
        if self.parameters.save_to_file:
            self._save(rows, columns)
        if self.parameters.compare_origin:
            compare(rows, plan, str(self.parameters.save_dir))

    def _plan(self) -> Plan:
        return make_plan(self.parameters, self.source)

    def _inputs(self, plan: Plan) -> list[Input]:
        wanted = self.parameters.valid_subset
        names = [wanted] if isinstance(wanted, str) else wanted
        return [find_input(name, plan, "valid_subset", self.source) for name in names]

    def _row(self, predictor: Predictor, source: Input) -> dict[str, Any]:
        from xdpx.runs.evaluation import evaluate

        options = self.parameters
        limit = options.max_eval_steps
        if options.compare_origin and limit is None:
            limit = predictor.plan.train.values.get("max_eval_steps")
        batches = predictor.scored_batches(source, most=limit, ignore_novel_target=options.ignore_novel_target)
        metrics = evaluate(predictor.engine, predictor.state, batches, predictor.task.loss)
        log.info(f"{source.name}: {predictor.report()}")
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
        write_text(path, before + as_tsv(rows, columns, header=not repeated))
        log.info(f"scores kept in {path}")


def _holds_scores(path: str) -> bool:
    """Tell whether a file is empty or begins as x-eval writes it."""
    with io.open(path, "rb") as table:
        first = table.readline(100_000).strip()
    return not first or b"split" in first.split(b"\t")


def _logged_scores(plan: Plan, save_dir: str) -> Mapping[str, float] | None:
    """Give what training logged at the step of the plan's checkpoint, None when it did not."""
    from xdpx.reports.run_logs import read_run

    step = layout.step_of(io.name(plan.checkpoint or ""))
    valid = read_run(save_dir).valid
    rows = [index for index, each in enumerate(valid["step"].tolist()) if each == step]
    return valid.row(rows[-1]) if rows else None


def compare(rows: list[dict[str, Any]], plan: Plan, save_dir: str) -> None:
    """Compare metrics with those logged in training.

    Raises:
        SystemExit: some differ; the text names them.
    """
    logged = _logged_scores(plan, save_dir) or {}
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
