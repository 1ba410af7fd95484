"""Test whether one run scores significantly better than another on the same rows.

Usage: x-script compare_runs RUN RUN [RUN ...] [on=SPLIT_OR_FILE] [major_metric=NAME] [out_file=PICTURE] [--json]
       x-script compare_runs PREDICTIONS PREDICTIONS [...] [major_metric=NAME] [out_file=PICTURE] [--json]

A RUN is a folder that x-train wrote; each scores the split that the first was evaluated on, or `on`. PREDICTIONS are
files that x-pred wrote for labelled rows, or any others with columns target and pred. Rows are matched by their
content. Accuracy is compared by McNemar's test, every other metric by the paired bootstrap; with three or more, each
is compared with each, and Holm's correction keeps the probability of any false alarm at 5 %.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from xdpx.config.faults import ConfigError, Fault
from xdpx.config.loading import Run
from xdpx.config.parameters import Parameters as BaseParameters
from xdpx.config.parameters import param
from xdpx.utils import io
from xdpx.utils.metric_names import is_higher_better

if TYPE_CHECKING:
    from xdpx.commands.comparable import Comparable
    from xdpx.metrics import Difference

NAME = "compare_runs"
USAGE = "x-script compare_runs A B [C ...] [on=SPLIT_OR_FILE] [major_metric=NAME] [out_file=PICTURE] [--json]"
LEVEL = 0.05
"""Significance level: a difference with a smaller p value is called significant."""


class CompareRuns:
    """Test whether one run scores significantly better than another on the same rows."""

    class Parameters(BaseParameters):
        """The keys of `x-script compare_runs`."""

        runs: list[str] = param(doc="Folders of runs, or files that x-pred wrote; two or more.")
        on: str = param("", doc="Split of their data, or file, to score runs on; '': what the first was evaluated on.")
        major_metric: str = param(
            "", doc="Metric that decides; '': that of the first run, the usual one for predictions."
        )
        draws: int = param(10_000, ge=100, doc="Number of bootstrap resamples of the rows.")
        target_col_name: str = param("target", doc="Column of the correct labels in files of predictions.")
        label_separator: str | None = param(
            None, doc="Separator of labels in that column, if rows may have several; null: found by what x-pred wrote."
        )
        out_file: str | None = param(None, doc="Picture to draw (png, svg, pdf); null: none.", unique=True)
        print_json: bool = param(False, doc="Print one JSON object on one line instead of tables.")

        def conflicts(self) -> list[tuple[str, str]]:
            """Refuse fewer than two different runs."""
            if len(set(self.runs)) == len(self.runs) > 1:
                return []
            return [("runs", "must name two or more different ones.")]

    def __init__(self, run: Run) -> None:
        self.parameters: CompareRuns.Parameters = run.parameters("command")

    def check(self) -> list[Fault]:
        """Return the faults of the runs and files named, before a model is built."""
        from xdpx.reports.references import FORMATS

        known, faults = self.parameters, []
        for path in known.runs:
            if not io.exists(path):
                faults.append(Fault("runs", f"there is no '{path}'.", "Name a run's folder or a file of predictions."))
            elif io.isdir(path) and not io.isfile(io.join(path, "args.py")):
                problem = f"'{path}' is a folder, but not a run: it contains no args.py."
                faults.append(Fault("runs", problem, "Name a folder that x-train wrote, or predictions."))
        kinds = {io.isdir(path) for path in known.runs}
        if not faults and len(kinds) > 1:
            remedy = "Compare runs with runs, or files with files: x-pred makes one of a run."
            faults.append(Fault("runs", "names runs and files.", remedy))
        if known.on and kinds == {False}:
            faults.append(Fault("on", "does not apply to files of predictions.", "Leave it out."))
        if known.out_file and io.name(known.out_file).rpartition(".")[2].lower() not in FORMATS:
            faults.append(
                Fault("out_file", f"is '{known.out_file}'.", f"End it in one of {', '.join(sorted(FORMATS))}.")
            )
        elif known.out_file and (io.isdir(known.out_file) or not io.is_writable(known.out_file)):
            faults.append(Fault("out_file", f"'{known.out_file}' cannot be written.", "Choose another place."))
        return faults

    def run(self) -> None:
        """Compare each pair; print and draw the result."""
        known = self.parameters
        every = list(self._read())
        first = every[0]
        every = [first, *(each.in_order_of(first) for each in every[1:])]
        deciding = known.major_metric or first.deciding
        names = [name for name in first.scores if all(math.isfinite(each.scores.get(name, math.nan)) for each in every)]
        _refuse_unless_scored(deciding, names, every)
        pairs = [_compared(one, other, known.draws) for one, other in combinations(every, 2)]
        _refuse_unless_scored(deciding, list(dict.fromkeys(name for pair in pairs for name in pair)), every)
        told = _told(every, pairs, deciding)
        if known.print_json:
            from xdpx.commands.evaluate import as_json

            sys.stdout.write(f"{as_json(told)}\n")
        else:
            sys.stdout.write("\n".join([*_lines(told)]) + "\n")
        if known.out_file:
            from xdpx.reports.pictures import difference_picture
            from xdpx.utils.commit import write_bytes

            figure_format = io.name(known.out_file).rpartition(".")[2].lower()
            write_bytes(known.out_file, difference_picture(told, figure_format), own=False)

    def _read(self) -> Iterator[Comparable]:
        from xdpx.commands.comparable import of_file, of_run

        known, on, metric = self.parameters, self.parameters.on, self.parameters.major_metric
        for path in known.runs:
            if not io.isdir(path):
                yield of_file(path, metric, known.target_col_name, known.label_separator)
                continue
            scored = of_run(path, on, metric, source=f"x-script {NAME}")
            on, metric = on or scored.split, metric or scored.deciding
            yield scored


def _refuse_unless_scored(deciding: str, names: Sequence[str], every: Sequence[Comparable]) -> None:
    """Raise ConfigError if the deciding metric is not among those that can be compared."""
    if deciding in names:
        return
    problem = f"there is no '{deciding}'."
    unknown = [each.name for each in every if math.isnan(each.scores.get(deciding, 0.0))]
    if unknown:
        problem = f"'{deciding}' is not defined for {unknown[0]}: its predictions or labels are NaN or all alike."
    remedy = f"Choose one of {', '.join(names)}." if names else "Compare what x-eval prints."
    raise ConfigError(f"x-script {NAME}", [Fault("major_metric", problem, remedy)])


def _compared(one: Comparable, other: Comparable, draws: int) -> dict[str, Difference]:
    """Return the difference of each score between two."""
    import numpy as np

    from xdpx.metrics import compare_scores, compare_shares

    copies = one.copies
    found = compare_scores(one.rows.score, other.rows.score, one.rows.num_rows, groups_N=copies, draws=draws)
    found = {name: each for name, each in found.items() if np.isfinite([each.first, each.second, each.p]).all()}
    if one.share and one.right is not None and other.right is not None and copies is None:
        found[one.share] = compare_shares(one.right, other.right)
    return found


def _told(every: Sequence[Comparable], pairs: Sequence[Mapping[str, Difference]], deciding: str) -> dict[str, Any]:
    """Return the result in the form that `print_json` prints."""
    from xdpx.metrics import holm

    first = every[0]
    named = list(combinations([each.name for each in every], 2))
    adjusted = holm([pair[deciding].p for pair in pairs])
    copies = 0 if first.copies is None else first.rows.num_rows - len(set(first.copies.tolist()))
    return {
        "format": 1,
        "on": first.on,
        "rows": first.rows.num_rows,
        "drawn_together": copies,
        "metric": deciding,
        "lower_is_better": is_higher_better(deciding) is False,
        "scores": {
            each.name: dict(sorted(each.scores.items())) for each in every
        },
        "comparisons": [
            {
                "first": names[0], "second": names[1], "p": p, "more_than_chance": p < LEVEL,
                "metrics": {name: {**each._asdict(), "difference": each.second - each.first} for name, each in
                            sorted(pair.items(), key=lambda item: (item[0] != deciding, item[0]))},
            }
            for names, pair, p in zip(named, pairs, adjusted, strict=True)
        ],
    }  # fmt: skip


def _lines(told: Mapping[str, Any]) -> Iterator[str]:
    """Yield the text to print: a table of all scores or pairs, and a sentence for each pair."""
    from xdpx.reports.tables import as_text

    deciding, comparisons = told["metric"], told["comparisons"]
    if len(comparisons) == 1:
        pair = comparisons[0]
        rows = [{"metric": name, **_cells(each, each["p"])} for name, each in pair["metrics"].items()]
        yield f"first: {pair['first']}\nsecond: {pair['second']}\n"
    else:
        rows = [{"first run": pair["first"], "second run": pair["second"],
                 **_cells(pair["metrics"][deciding], pair["p"])} for pair in comparisons]  # fmt: skip
        yield f"{deciding}; p values by Holm's correction for {len(comparisons)} comparisons\n"
    yield as_text(rows, list(rows[0]))
    for pair in comparisons:
        yield in_words(pair, told)
    if told["drawn_together"]:
        yield f"{told['drawn_together']:,} rows are copies of others or of the same query: they are drawn together."
    if len(comparisons) == 1 and len(rows) > 1:
        yield "The other metrics are for information only: at the 5 % level, one in twenty differs by chance."


def _cells(each: Mapping[str, Any], p: float) -> dict[str, Any]:
    return {
        "first": each["first"], "second": each["second"], "difference": each["difference"],
        "95 % interval": f"{each['low']:+.4g} to {each['high']:+.4g}", "p": round(p, 5), "test": each["test"],
    }  # fmt: skip


def in_words(pair: Mapping[str, Any], told: Mapping[str, Any]) -> str:
    """Return a sentence on which of two is better, and whether the difference is significant."""
    metric = told["metric"]
    each = pair["metrics"][metric]
    if each["difference"] == 0:
        return f"{metric}: both score {each['first']:.4g} on {told['rows']:,} rows."
    places = ["first", "second"]
    if (each["difference"] > 0) != told["lower_is_better"]:
        places.reverse()
    low, high = sorted((each["low"], each["high"]) if places[0] == "second" else (-each["low"], -each["high"]))
    better, worse = (pair[place] for place in places)
    facts = (
        f"{each[places[0]]:.4g} against {each[places[1]]:.4g}, a difference of "
        f"{each[places[0]] - each[places[1]]:+.4g}, 95 % interval {low:+.4g} to {high:+.4g}, p {_p(pair['p'])}"
    )
    if pair["more_than_chance"]:
        return f"{metric}: {better} is better than {worse} ({facts}): significant."
    return f"{metric}: {better} is not significantly better than {worse} ({facts}). More rows would help to decide."


def _p(value: float) -> str:
    return f"= {value:.3f}" if value >= 0.001 else "< 0.001"


def main(argv: Sequence[str]) -> int:
    """Run the script for the runs or files named on the command line."""
    from xdpx.commands.script_arguments import run_on_paths

    return run_on_paths(NAME, argv, key="runs", usage=USAGE)
