"""Choose for each class the probability threshold at which the loss `bce` predicts it.

Usage: x-script bce_threshold FILE target_map_file=data/target_map.txt [target_col_name=labels] [key=value ...] [--dry]
       x-script bce_threshold CONFIG [key=value ...] [--dry]

FILE is predict_file, which x-pred wrote for labelled rows; a config may name it. Thresholds are chosen on it and
evaluated on eval_file. out_file gets `{predict_threshold: [...]}`, usable as a __parent__ of a training config or as
extra_config of x-eval and x-pred.

The correct labels are in the column `target`, unless target_col_name names another. If rows may have several labels,
every class gets a threshold; if each has one, class 0 means "none" and gets none. Which it is, and the separator of the
labels, is known by the column target_prob of x-pred; for other files give label_separator.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from xdpx.config.faults import ConfigError, Fault
from xdpx.config.loading import Run
from xdpx.config.parameters import Parameters as BaseParameters
from xdpx.config.parameters import param

if TYPE_CHECKING:
    from numpy.typing import NDArray

NAME = "bce_threshold"
MOST_DIGITS = 16
"""Significant digits of double precision."""
SHARE = 0.5
"""The threshold of `bce` by default."""


class BceThreshold:
    """Choose for each class the probability threshold at which the loss `bce` predicts it."""

    class Parameters(BaseParameters):
        """The keys of `x-script bce_threshold`."""

        predict_file: str = param(doc="Predictions of labelled rows to choose on, as x-pred writes them.", path="file")
        target_map_file: str = param(doc="Labels, one per line: target_map.txt of the data.", path="file")
        eval_file: str | None = param(None, doc="Predictions to judge the choice on; null: predict_file.", path="file")
        out_file: str | None = param(
            None, doc="Where to write {predict_threshold: [...]}; null prints it.", unique=True
        )
        mode: Literal["f1", "precision"] = param("f1", doc="Score to maximise for each class.")
        min_threshold: float = param(0.4, ge=0, le=1, doc="Least threshold.")
        max_threshold: float = param(1.0, ge=0, le=1, doc="Greatest threshold.")
        beta: float = param(1.0, gt=0, doc="Recall counts this many times as much as precision in the F measure.")
        resolution: int = param(4, ge=1, doc="Decimals of a threshold; more if rounding would select other rows.")
        gap: float = param(
            0.5, gt=0, le=1, doc="Position of a threshold between the score of the first row rejected (0) and of "
            "the last row accepted (1)."
        )  # fmt: skip
        target_col_name: str = param("target", doc="Column of the correct labels.")
        label_separator: str | None = param(
            None, doc="Separator of labels in that column, if rows may have several; null: found by what x-pred wrote."
        )

        def conflicts(self) -> list[tuple[str, str]]:
            """Refuse bounds that leave no threshold."""
            if self.min_threshold <= self.max_threshold:
                return []
            return [("min_threshold", f"is {self.min_threshold}, above max_threshold {self.max_threshold}. Lower it.")]

    def __init__(self, run: Run) -> None:
        self.parameters: BceThreshold.Parameters = run.parameters("command")

    def run(self) -> None:
        """Choose the thresholds, print their scores, and write them."""
        from xdpx.tokenizers.target_map import TargetMap
        from xdpx.utils.commit import write_text

        known = self.parameters
        self._labels = TargetMap.read(known.target_map_file)
        prob, wanted, self._several = self._read(known.predict_file)
        chosen = [self._choose(wanted[:, index], prob[:, index]) for index in self._classes]
        if known.eval_file is not None:
            prob, wanted, _ = self._read(known.eval_file)
        self._report(prob, wanted, chosen)
        text = json.dumps({"predict_threshold": chosen}) + "\n"
        if known.out_file is None:
            sys.stdout.write(text)
        else:
            write_text(known.out_file, text, own=False)

    @property
    def _classes(self) -> range:
        """The classes with a threshold: all if rows may have several labels, else all but class 0, which means none."""
        return range(0 if self._several else 1, len(self._labels))

    def _read(self, path: str) -> tuple[Any, Any, bool]:
        """Return the probabilities (N, C), the correct classes as booleans (N, C), and if rows may have several."""
        import numpy as np

        from xdpx.inference.predicted_file import (
            labels_in,
            misplaced,
            read_classes,
            read_columns,
            read_probabilities,
            read_target_prob,
            separator_of,
        )

        key = "target_col_name"
        shares, targets = read_columns(path, ["prob", self.parameters.target_col_name], ["predict_file", key])
        prob = read_probabilities(path, shares)
        if prob.shape[1] != len(self._labels):
            problem = f"has probabilities of {prob.shape[1]} classes, target_map_file has {len(self._labels)} labels."
            raise ConfigError(path, [Fault("predict_file", problem, "Give the target_map.txt of the same data.")])
        target_prob = read_target_prob(path)
        separator = separator_of(path, targets, target_prob, self.parameters.label_separator)
        cells = [labels_in(cell, separator) for cell in targets]
        if separator is None and (several := next(self._several_in(targets), None)) is not None:
            problem = f"contains '{several}', which is no label or several of them."
            remedy = "Give the separator of the labels, such as label_separator=','."
            raise ConfigError(path, [Fault(key, problem, remedy)])
        rows = np.repeat(np.arange(len(cells)), [len(each) for each in cells])
        wanted = np.zeros(prob.shape, bool)
        wanted[rows, read_classes(path, [label for each in cells for label in each], self._labels, key)] = True
        if (index := misplaced(wanted, prob, target_prob)) is not None:
            label = self._labels.labels[index]
            problem = f"has '{label}' on line {index + 1}, where 'prob' of {path} has another class."
            remedy = "Give the target_map.txt of the run that predicted."
            raise ConfigError(path, [Fault("target_map_file", problem, remedy)])
        return prob, wanted, separator is not None

    def _several_in(self, cells: Sequence[str]) -> Iterator[str]:
        """Yield the cells that are blank, or are known labels with a separator between them."""
        from xdpx.datasets.findings.labels import SEPARATORS, WITHIN_LABELS

        for cell in dict.fromkeys(cells):
            if cell not in self._labels:
                separators = [each for each in SEPARATORS + WITHIN_LABELS if each in cell]
                cuts = ([part for part in cell.split(separator) if part.strip()] for separator in separators)
                if not cell.strip() or any(all(part in self._labels for part in cut) for cut in cuts):
                    yield cell

    def _choose(self, wanted: NDArray[Any], score: NDArray[Any]) -> float:
        from xdpx.metrics import best_cut

        known = self.parameters
        cut = best_cut(
            wanted, score, beta=known.beta, goal=known.mode, lowest=known.min_threshold, highest=known.max_threshold,
            gap=known.gap,
        )  # fmt: skip
        if cut.threshold != cut.threshold:
            return max(SHARE, known.min_threshold)
        return rounded_down(cut.threshold, score, digits=known.resolution, lowest=known.min_threshold)

    def _report(self, prob: NDArray[Any], wanted: NDArray[Any], chosen: Sequence[float]) -> None:
        """Print precision, recall and F1 of each class and of all, with the threshold 0.5 and with those chosen."""
        from xdpx.metrics import several_labels
        from xdpx.reports.tables import as_text

        classes = list(self._classes)
        before, after = self._predict(prob, [SHARE] * len(classes)), self._predict(prob, chosen)
        groups = [(self._labels.labels[index], threshold, [index]) for index, threshold in zip(
            classes, chosen, strict=True)]  # fmt: skip
        rows = []
        for label, threshold, kept in [*groups, ("(all)", None, classes)]:
            row: dict[str, Any] = {"label": label, "threshold": threshold}
            for name, pred in (("before", before), ("after", after)):
                scores = several_labels(wanted[:, kept], pred[:, kept], average="micro")
                row |= {
                    f"{what}_{name}": score for what, score in zip(("precision", "recall", "f1"), scores, strict=True)
                }
            rows.append(row)
        sys.stdout.write(as_text(rows, list(rows[0])))

    def _predict(self, prob: NDArray[Any], thresholds: Sequence[float]) -> Any:
        """Return the predictions of `bce` as booleans (N, C): classes that reach their threshold, or only the best."""
        import numpy as np

        found = np.zeros(prob.shape, bool)
        margin = prob[:, self._classes.start :] - np.array(thresholds)
        if self._several:
            return margin >= 0
        best = margin.argmax(axis=1)
        taken = margin.max(axis=1) >= 0
        found[np.flatnonzero(taken), best[taken] + 1] = True
        return found


def rounded_down(threshold: float, score_N: NDArray[Any], *, digits: int, lowest: float) -> float:
    """Round a threshold down to few digits, so that it selects the same rows; rounding up could lose rows.

    Args:
        threshold: rows at or above it are selected.
        score_N: the scores of the rows.
        digits: decimals to start with; more are used if the rounded value selects other rows or is below `lowest`.
        lowest: smallest value allowed.
    """
    taken = (score_N >= threshold).sum()
    for count in range(digits, MOST_DIGITS):
        short: float = math.floor(threshold * 10**count) / 10**count
        if lowest <= short <= threshold and (score_N >= short).sum() == taken:
            return short
    return threshold


def main(argv: Sequence[str]) -> int:
    """Run the script for every run of a config."""
    from xdpx.commands.script_arguments import run_config

    return run_config(NAME, argv, file_key="predict_file")
