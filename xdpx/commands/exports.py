"""Common base of the scripts that export a run: their keys, and the checks before the model is built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from xdpx.config.faults import ConfigError, Fault
from xdpx.config.loading import Run
from xdpx.config.parameters import param
from xdpx.config.spmd_keys import SPMD
from xdpx.inference.plan import InferenceParameters, find_input, make_plan

if TYPE_CHECKING:
    from xdpx.inference.exporting import Judge
    from xdpx.inference.formats import Format


class ExportParameters(InferenceParameters):
    """The run to export, the folder to write, and the rows on which both are compared."""

    out_dir: str = param(
        doc="Folder to write: a new one, an empty one, or an earlier export to the same format.",
        path="new_directory",
        unique=True,
    )
    rows: str | None = param(
        None,
        doc="Rows to compare on: a split of the run's data_dir, or a raw file; null: the valid_subset of training.",
    )
    num_rows: int = param(200, ge=1, doc="Maximum number of these rows; a few unusual rows are added.")


class ExportCommand:
    """Exports a trained network in one format.

    Attributes:
        format_name: its name in the table of formats.
        other_formats: names of formats that may be written instead.
    """

    format_name: ClassVar[str]
    other_formats: ClassVar[tuple[str, ...]] = ()

    Parameters: type[ExportParameters] = ExportParameters

    def __init__(self, run: Run) -> None:
        self.source = run.source
        self.parameters: Any = run.parameters("command")

    def format(self) -> Format:
        """Return the format, with the options chosen."""
        from xdpx.inference.formats import format_named

        return format_named(self.format_name)()

    def check(self) -> list[Fault]:
        """Return the faults that can be found before the model is built, including missing packages."""
        from xdpx.inference.exporting import occupied

        known, names = self.parameters, (self.format_name, *self.other_formats)
        missing = [self._missing(name) for name in names]
        found = missing[0] if all(missing) else []
        found += occupied(known.out_dir, names)
        found += [Fault(key, f"is {value}, but {why}.", "Leave it out.") for key, value, why in self._unused() if value]
        try:
            plan = make_plan(known, self.source)
            if plan.exported is not None:
                found.append(
                    Fault("save_dir", f"'{plan.exported}' is already an export.", "Name the run it was exported from.")
                )
            elif known.rows is not None:
                find_input(known.rows, plan, "rows", self.source)
        except ConfigError as error:
            found += error.faults
        return found

    def _unused(self) -> Iterator[tuple[str, Any, str]]:
        """Yield (key, value, reason) of the keys of a run that have no effect on an export."""
        known = self.parameters
        yield "exact", known.exact, "other libraries than PyTorch compute an export"
        yield "cuda", known.cuda, "an export is one network, written and compared on the CPU"
        yield "nproc", known.nproc if known.nproc != 1 else None, "one process writes an export"
        yield "engine", known.engine if known.engine == SPMD else None, "an export is written by PyTorch"
        yield "mesh", known.mesh, "an export is written by PyTorch, on one device"

    def _missing(self, name: str) -> list[Fault]:
        from xdpx.inference.formats import format_named

        return format_named(name).missing(rounds=self.rounds())

    def rounds(self) -> bool:
        """Return whether weights are rounded to 8 bits."""
        return False

    def run(self) -> None:
        """Write the export, compare it with the run, and print the measurements."""
        from xdpx.inference.exporting import export

        known = self.parameters
        lines = export(
            self.format(), known, known.out_dir, source=self.source, rows=known.rows, num_rows=known.num_rows,
            judge=self.judge(),
        )  # fmt: skip
        print("\n".join(lines))

    def judge(self) -> Judge | None:
        """Return a function that accepts or rejects an export after the comparison; None for no further test."""
        return None


class RoundingParameters(ExportParameters):
    """The same keys, and how much accuracy 8 bits may cost."""

    most_lost: float = param(
        0.5,
        ge=0,
        doc="Refuse 8 bits when major_metric on the rows becomes worse by more: points (hundredths), or percent of a "
        "metric without bounds, such as loss or mse.",
    )


class QuantisingParameters(RoundingParameters):
    """The same keys, and the number of bits of the weights."""

    quantise: Literal["int8"] | None = param(None, doc="int8: round to 8 bits, and measure what that costs and gains.")


class QuantisingCommand(ExportCommand):
    """An export in a format that supports quantisation to 8 bits."""

    Parameters: type[ExportParameters] = QuantisingParameters

    def rounds(self) -> bool:
        """Return whether weights are rounded to 8 bits."""
        return self.parameters.quantise is not None

    def judge(self) -> Judge | None:
        """Return the measurement of accuracy and time before and after rounding, if weights are rounded; else None."""
        if not self.rounds():
            return None
        from xdpx.commands.rounding import judge_rounding

        return judge_rounding(self.parameters.rows, self.parameters.most_lost, self.source)
