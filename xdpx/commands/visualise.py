"""`x-viz`: draw what runs logged, again, in another format, over wall time, or beside reference runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdpx.config.faults import ConfigError, Fault
from xdpx.config.parameters import Parameters as BaseParameters
from xdpx.config.parameters import param
from xdpx.reports.references import format_conflicts, named_references, reference_conflicts
from xdpx.reports.run_tables import TRAIN_LOG, VALID_LOG
from xdpx.utils import io

if TYPE_CHECKING:
    from xdpx.config.loading import Run

LOGS = (VALID_LOG, TRAIN_LOG)


class Visualise:
    """Draw the figures of one run, or of every run that a `/*` or `**/*` at the end of save_dir stands for."""

    class Parameters(BaseParameters):
        """The keys of `x-viz`."""

        save_dir: str = param(
            doc="Folder of the run to draw; end it in /* for every run in a folder, in **/* for those at any depth."
        )
        label: str | None = param(None, doc="Name of this run in the legends; by default the name of its folder.")
        ref_dir: str | list[str] | dict[str, str] | None = param(
            None, doc="Runs to compare with: a folder, a list, or label: folder; at most 4."
        )
        figext: str = param("png", doc="Format of the figures: png, svg, pdf or another that matplotlib writes.")
        walltime: bool = param(False, doc="Use the seconds spent training as the x axis instead of steps.")

        def conflicts(self) -> list[tuple[str, str]]:
            """Refuse too many references and formats that cannot be written."""
            return [*reference_conflicts("ref_dir", self.ref_dir), *format_conflicts("figext", self.figext)]

    def __init__(self, run: Run) -> None:
        self.source = run.source
        self.parameters: Visualise.Parameters = run.parameters("command")

    def check(self) -> list[Fault]:
        """Return a fault for each run that is not there or has no logs."""
        faults = []
        if not expand(self.parameters.save_dir):
            faults.append(
                Fault("save_dir", f"'{self.parameters.save_dir}' holds no logs.", _remedy(), code="missing_path")
            )
        plots = [io.join(folder, "plots") for folder in expand(self.parameters.save_dir)]
        closed = [folder for folder in plots if not io.is_writable(folder)]
        if closed:
            remedy = "Copy the run to a place where you may write, and draw it there."
            faults.append(Fault("save_dir", f"'{closed[0]}', where its figures go, cannot be written to.", remedy))
        for folder in named_references(self.parameters.ref_dir).values():
            if not _has_logs(folder):
                faults.append(Fault("ref_dir", f"'{folder}' holds no logs.", _remedy(), code="missing_path"))
        return faults

    def run(self) -> None:
        """Draw every run, and say where its figures are."""
        from xdpx.reports.figures import draw_run

        faults = self.check()
        if faults:
            raise ConfigError(self.source, faults)
        options = self.parameters
        for folder in expand(options.save_dir):
            written = draw_run(
                folder,
                label=options.label,
                references=named_references(options.ref_dir),
                figext=options.figext,
                walltime=options.walltime,
            )
            print(f"{len(written)} figures in {io.join(folder, 'plots')}")


def expand(save_dir: str) -> list[str]:
    """Return the run folders that `save_dir` stands for: itself, or with `/*` or `**/*` those inside that hold logs."""
    for ending, recursive in (("**/*", True), ("/*", False)):
        if save_dir.endswith(ending):
            return _runs_below(save_dir.removesuffix(ending).rstrip("/") or "/", recursive=recursive)
    return [save_dir] if _has_logs(save_dir) else []


def _runs_below(root: str, *, recursive: bool) -> list[str]:
    if not io.isdir(root):
        return []
    inside = io.listdir(root, recursive=recursive, full_path=True)
    if recursive:
        return sorted({io.parent(path) for path in inside if io.name(path) in LOGS})
    return sorted(folder for folder in inside if io.isdir(folder) and _has_logs(folder))


def _has_logs(folder: str) -> bool:
    return any(io.isfile(io.join(folder, name)) for name in LOGS)


def _remedy() -> str:
    return f"Give the folder of a run that has trained: it holds {' and '.join(LOGS)}."
