"""`x-viz`: redraw what runs logged: in another format, over wall time, with reference runs, or as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdpx.config.faults import ConfigError, Fault
from xdpx.config.parameters import Parameters as BaseParameters
from xdpx.config.parameters import param
from xdpx.reports.references import format_conflicts, named_references, reference_conflicts
from xdpx.reports.run_tables import TRAIN_LOG, VALID_LOG
from xdpx.utils import commit, io

if TYPE_CHECKING:
    from xdpx.config.loading import Run

LOGS = (VALID_LOG, TRAIN_LOG)
PAGE = "page.html"
PAGE_OF_SEVERAL = "runs.html"
MOST_ON_A_PAGE = 200


class Visualise:
    """Draw the figures of one run, or of every run matched by a `/*` or `**/*` at the end of save_dir."""

    class Parameters(BaseParameters):
        """The keys of `x-viz`."""

        save_dir: str | list[str] = param(
            doc="Folder of the run to draw, or several; end it in /* for every run in a folder, in **/* for those at "
            "any depth. `x-viz DIR DIR` is the same."
        )
        label: str | None = param(None, doc="Name of this run in the legends; by default the name of its folder.")
        ref_dir: str | list[str] | dict[str, str] | None = param(
            None, doc="Runs to compare with: a folder, a list, or label: folder; at most 4."
        )
        figext: str = param("png", doc="Format of the figures: png, svg, pdf or another that matplotlib writes.")
        walltime: bool = param(False, doc="Use the seconds spent training as the x axis instead of steps.")
        html: bool = param(
            False, doc="Write one page with the curves, settings, logs and predictions of all these runs, no figures."
        )
        page: str | None = param(
            None,
            doc=f"Path of the page: by default plots/{PAGE} of the run, for several runs {PAGE_OF_SEVERAL} here.",
            unique=True,
            when=("html", "is", True),
        )

        def conflicts(self) -> list[tuple[str, str]]:
            """Refuse too many references and formats that cannot be written."""
            return [*reference_conflicts("ref_dir", self.ref_dir), *format_conflicts("figext", self.figext)]

    def __init__(self, run: Run) -> None:
        self.source = run.source
        self.parameters: Visualise.Parameters = run.parameters("command")

    def check(self) -> list[Fault]:
        """Return a fault for each run that is missing or has no logs."""
        if self.parameters.html:
            return self._faults_of_page()
        faults = [
            Fault("save_dir", f"'{folder}' contains no logs.", _below(folder) or _remedy(), code="missing_path")
            for folder in _named(self.parameters.save_dir)
            if not expand(folder)
        ]
        plots = [io.join(folder, "plots") for folder in self._folders()]
        closed = [folder for folder in plots if not io.is_writable(folder)]
        if closed:
            remedy = "Copy the run to a writable folder, and draw it there."
            faults.append(Fault("save_dir", f"'{closed[0]}', where its figures go, cannot be written to.", remedy))
        for folder in named_references(self.parameters.ref_dir).values():
            if not _has_logs(folder):
                faults.append(Fault("ref_dir", f"'{folder}' contains no logs.", _remedy(), code="missing_path"))
        return faults

    def _folders(self) -> list[str]:
        """Return the folders of all runs, each once."""
        return list(dict.fromkeys(found for folder in _named(self.parameters.save_dir) for found in expand(folder)))

    def _faults_of_page(self) -> list[Fault]:
        from xdpx.board.finding import is_run, listing

        folders = self._pictured()
        without = [folder for folder in folders if not is_run(listing(folder))]
        if without and (remedy := _below(without[0])):
            return [Fault("save_dir", f"'{without[0]}' contains no run itself.", remedy, code="missing_path")]
        if not folders or without:
            problem = f"'{without[0] if without else self.parameters.save_dir}' contains no run."
            remedy = "Give the folder of a run of x-train or x-exp, or the output_dir of a Trainer."
            return [Fault("save_dir", problem, remedy, code="missing_path")]
        if len(folders) > MOST_ON_A_PAGE:
            problem = f"matches {len(folders)} runs; a page shows at most {MOST_ON_A_PAGE}."
            return [Fault("save_dir", problem, "Name fewer, or use x-board for all of them.")]
        target = self._page()
        if io.isdir(target) or not io.is_writable(target):
            return [Fault("page", f"'{target}' cannot be written.", "Choose another file: page=FILE.")]
        return []

    def _pictured(self) -> list[str]:
        """Return the folders of the runs, of any kind, that go onto the page."""
        from xdpx.board.finding import runs_in

        return list(dict.fromkeys(found for folder in _named(self.parameters.save_dir) for found in runs_in(folder)))

    def _page(self) -> str:
        folders = self._pictured()
        own = io.join(folders[0], "plots", PAGE) if len(folders) == 1 else PAGE_OF_SEVERAL
        return self.parameters.page or own

    def run(self) -> None:
        """Draw every run, and print where its figures or their page are."""
        faults = self.check()
        if faults:
            raise ConfigError(self.source, faults)
        if self.parameters.html:
            from xdpx.board.static_page import page_of

            commit.write_text(self._page(), page_of(self._pictured()), private=True)
            print(f"{len(self._pictured())} on the page {self._page()}")
            return
        from xdpx.reports.figures import draw_run

        options = self.parameters
        for folder in self._folders():
            written = draw_run(
                folder,
                label=options.label,
                references=named_references(options.ref_dir),
                figext=options.figext,
                walltime=options.walltime,
            )
            why = "" if written else ": its logs contain no row that can be drawn"
            print(f"{len(written)} figures in {io.join(folder, 'plots')}{why}")


def _named(save_dir: str | list[str]) -> list[str]:
    return [save_dir] if isinstance(save_dir, str) else save_dir


def expand(save_dir: str) -> list[str]:
    """Return the run folders matched by `save_dir`: itself, or with `/*` or `**/*` those inside that hold logs."""
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


def _below(folder: str) -> str:
    """Return how to name the runs below a folder that is none itself; '' if there are none."""
    from xdpx.board.finding import runs_below

    return f"For all runs below it, write '{folder}/**/*'; or use x-board." if any(runs_below(folder)) else ""


def _remedy() -> str:
    return f"Give the folder of a run that has trained: it holds {' and '.join(LOGS)}."
