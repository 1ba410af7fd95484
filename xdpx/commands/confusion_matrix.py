"""Count predictions by target and predicted class, to show which classes are confused.

Usage: x-script confusion_matrix FILE [key=value ...] [--dry]
       x-script confusion_matrix CONFIG [key=value ...] [--dry]

FILE is predict_file, written by x-pred; a config may name it. target_map_file (target_map.txt of the data) gives the
classes and their order; without it they are the labels in FILE. With out_file the table is written there: as a picture
if it ends in png, svg or pdf, else as comma separated values. Rows are targets, columns predictions.
"""

from __future__ import annotations

import csv
import io as texts
import sys
from collections.abc import Sequence

from xdpx.config.faults import ConfigError, Fault
from xdpx.config.loading import Run
from xdpx.config.parameters import Parameters as BaseParameters
from xdpx.config.parameters import param
from xdpx.utils import io

NAME = "confusion_matrix"


class ConfusionMatrix:
    """Count predictions by target and predicted class."""

    class Parameters(BaseParameters):
        """The keys of `x-script confusion_matrix`."""

        predict_file: str = param(doc="Predictions of labelled rows, as x-pred writes them.", path="file")
        target_map_file: str | None = param(
            None, doc="Labels, one per line: target_map.txt of the data; null: those in predict_file.", path="file"
        )
        out_file: str | None = param(
            None,
            doc="Where to write the table: a picture by its ending (png, svg, pdf), else comma separated; null: print.",
            unique=True,
        )
        target_col_name: str = param("target", doc="Column of the correct labels.")
        pred_col_name: str = param("pred", doc="Column of the predicted labels.")

    def __init__(self, run: Run) -> None:
        self.parameters: ConfusionMatrix.Parameters = run.parameters("command")

    def run(self) -> None:
        """Print the table, or write it to out_file."""
        from xdpx.inference.predicted_file import (
            are_of_several,
            labels_of,
            read_classes,
            read_columns,
            read_target_prob,
        )
        from xdpx.metrics import confusion
        from xdpx.reports.references import FORMATS
        from xdpx.reports.tables import as_text
        from xdpx.tokenizers.target_map import TargetMap
        from xdpx.utils.commit import write_bytes, write_text

        known = self.parameters
        names, keys = (known.target_col_name, known.pred_col_name), ("target_col_name", "pred_col_name")
        columns = read_columns(known.predict_file, names, keys)
        if are_of_several(read_target_prob(known.predict_file)):
            problem = "contains rows with several labels or none, and a confusion matrix needs one per row."
            remedy = "x-eval scores each label, and x-script compare_runs compares such files."
            raise ConfigError(known.predict_file, [Fault("predict_file", problem, remedy)])
        if known.target_map_file is not None:
            labels = TargetMap.read(known.target_map_file)
        else:
            labels = labels_of(known.predict_file, *columns)
        target, pred = (
            read_classes(known.predict_file, cells, labels, key) for cells, key in zip(columns, keys, strict=True)
        )
        table = confusion(target, pred, len(labels)).tolist()
        figure_format = io.name(known.out_file or "").rpartition(".")[2].lower()
        if known.out_file is not None and figure_format in FORMATS:
            from xdpx.reports.pictures import confusion_picture

            title = f"{io.name(known.predict_file)}, {len(target):,} rows"
            write_bytes(known.out_file, confusion_picture(labels.labels, table, title, figure_format), own=False)
            return
        if known.out_file is not None:
            write_text(known.out_file, _comma_separated(labels.labels, table), own=False)
            return
        rows = [{"target": label, **dict(zip(labels.labels, row, strict=True))} for label, row in zip(
            labels.labels, table, strict=True)]  # fmt: skip
        sys.stdout.write(as_text(rows, ["target", *labels.labels]))


def _comma_separated(labels: Sequence[str], table: Sequence[Sequence[int]]) -> str:
    text = texts.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["", *labels])
    writer.writerows([label, *row] for label, row in zip(labels, table, strict=True))
    return text.getvalue()


def main(argv: Sequence[str]) -> int:
    """Run the script for every run of a config."""
    from xdpx.commands.script_arguments import run_config

    return run_config(NAME, argv, file_key="predict_file")
