"""Quantise a trained network to 8 bits for the CPU by each method available, measure them, and keep the fastest.

Usage: x-script export_int8 save_dir=... out_dir=... [most_lost=0.5] [key=value ...] [--dry]

The methods are those of `export_onnx quantise=int8` (dynamic) and `export_openvino quantise=int8` (static), if their
packages are installed: `pip install 'xdpx[export]'`, `'xdpx[openvino]'`. Each is scored on labelled rows and timed row
by row on one thread; one that loses more than most_lost (points of a score, percent of a loss) is discarded. out_dir
gets the export of the fastest remaining one, as its own script writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NamedTuple

from xdpx.commands.exports import ExportCommand, RoundingParameters
from xdpx.commands.script_arguments import run_config
from xdpx.config.faults import ConfigError, Fault
from xdpx.inference import export_folder
from xdpx.inference.plan import find_input, make_plan
from xdpx.reports.tables import as_text
from xdpx.utils import io

NAME = "export_int8"
WAYS = {"onnx": "ONNX, dynamic", "openvino": "OpenVINO, static"}
"""Format -> its method of quantisation."""


class Tried(NamedTuple):
    """One method with its measurements.

    Attributes:
        name: of the format.
        folder: the export.
        facts: the content of its export.json.
    """

    name: str
    folder: str
    facts: dict[str, Any]


class ExportInt8(ExportCommand):
    """Quantise a trained network to 8 bits by each method available, and keep the fastest."""

    format_name: ClassVar[str] = "onnx"
    other_formats: ClassVar[tuple[str, ...]] = ("openvino",)

    class Parameters(RoundingParameters):
        """The keys of `x-script export_int8`."""

    def rounds(self) -> bool:
        """Return whether weights are rounded to 8 bits: always here."""
        return True

    def run(self) -> None:
        """Try each method, print the scores and times of all, and move the best export to out_dir."""
        from xdpx.commands.rounding import unit_of
        from xdpx.inference.exporting import staged

        with TemporaryDirectory(prefix="xdpx-int8-") as place:
            tried, told = self._tried(place)
            seconds = self._in_turn(tried)
            best = tried[seconds.index(min(seconds))]
            facts = {"format": best.name, "checkpoint": best.facts["checkpoint"]}
            with staged(self.parameters.out_dir, facts, replaces=[*WAYS]) as out:
                export_folder.copy_files(best.folder, out)
        path = io.join(self.parameters.out_dir, best.facts["file"])
        most = f"{self.parameters.most_lost:g} {unit_of(best.facts['rounding']['metric'])}"
        kept = f"{path}: {WAYS[best.name]}, the fastest of those that lose at most {most}"
        print("\n".join([_table(tried, seconds), *told, kept]))

    def _tried(self, place: str) -> tuple[list[Tried], list[str]]:
        """Return the methods that lose few enough points, and messages about the others.

        Raises:
            ConfigError: no method is left.
        """
        from xdpx.commands.rounding import judge_rounding
        from xdpx.inference.exporting import export
        from xdpx.inference.formats import format_named

        known, tried, faults = self.parameters, list[Tried](), list[Fault]()
        for name in WAYS:
            missing, folder = self._missing(name), io.join(place, name)
            try:
                if missing:
                    raise ConfigError(self.source, missing)
                kind: Any = format_named(name)
                judge = judge_rounding(known.rows, known.most_lost, self.source)
                export(
                    kind(quantise="int8"), known, folder, source=self.source, rows=known.rows, num_rows=known.num_rows,
                    judge=judge,
                )  # fmt: skip
            except ConfigError as error:
                faults += error.faults
                continue
            tried.append(Tried(name, folder, export_folder.read(folder)))
        if not tried:
            raise ConfigError(self.source, list(dict.fromkeys(faults)))
        return tried, [f"not kept: {fault.key} {fault.problem} {fault.remedy}" for fault in faults]

    def _in_turn(self, tried: Sequence[Tried]) -> list[float]:
        """Return the median CPU seconds per row of each export, measured alternately on the same rows."""
        from xdpx.commands.rounding import medians, single_rows
        from xdpx.inference.exported import open_network
        from xdpx.inference.predictor import Predictor

        known = self.parameters
        plan = make_plan(known.model_copy(update={"engine": "pytorch", "mesh": None, "nproc": None}), self.source)
        on = find_input(tried[0].facts["rounding"]["rows"], plan, "rows", self.source)
        inputs = [each["name"] for each in tried[0].facts["inputs"]]
        rows = single_rows(Predictor(plan, cuda=False, seed=known.seed), inputs, on)
        networks = [open_network(each.folder, each.facts, threads=1, source=each.folder) for each in tried]
        return medians(networks, rows)


def _table(tried: Sequence[Tried], seconds: Sequence[float]) -> str:
    """Return a table with a line for each method: score and time before and after, and time measured alternately."""
    rows = []
    for each, second in zip(tried, seconds, strict=True):
        found = each.facts["rounding"]
        rows.append({
            "8 bits by": WAYS[each.name], f"{found['metric']} before": f"{found['before']:.4f}",
            "after": f"{found['after']:.4f}", "ms before": f"{found['milliseconds_before']:.3f}",
            "ms after": f"{found['milliseconds_after']:.3f}", "in turn": f"{1000 * second:.3f}",
        })  # fmt: skip
    about = f"scores on {found['rows']}; milliseconds of CPU for one row on one thread (median)"
    return f"{as_text(rows, list(rows[0]))}{about}"


def main(argv: Sequence[str]) -> int:
    """Run the script for every run of a config."""
    return run_config(NAME, argv)
