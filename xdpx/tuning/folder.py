"""The files in the folder of a search, and whether a search may use the folder."""

from __future__ import annotations

from xdpx.config.faults import Fault
from xdpx.search.journal import FILE_NAME as JOURNAL
from xdpx.tuning.parameters import TuneParameters
from xdpx.utils import io
from xdpx.utils.owners import is_lasting

CONFIGS = "configs"
OUTPUT = "output"
RESULTS = "results.tsv"
DECISIONS = "decisions.tsv"
IMPORTANCE = "importance.tsv"
IMPORTANCE_FIGURE = "importance.png"
OVERVIEW = "overview.png"
BEST = "best.hjson"


def holds_search(folder: str) -> bool:
    """Return whether a folder contains a search: a journal with its first line, which describes the search."""
    path = io.join(folder, JOURNAL)
    if not io.isfile(path):
        return False
    with io.open(path, "rb") as file:
        return bytes(file.readline()).endswith(b"\n")


def fault_of(settings: TuneParameters) -> Fault | None:
    """Return why the search cannot use save_dir; None if it can."""
    folder = settings.save_dir
    if holds_search(folder):
        if settings.resume:
            return None
        remedy = "Set resume: auto to continue it, or choose another folder."
        return Fault("save_dir", f"'{folder}' already contains a search.", remedy, code="occupied")
    if settings.resume is True:
        remedy = "Name the save_dir of the search, or use resume: auto to begin if there is none."
        return Fault("save_dir", f"'{folder}' contains no search to continue.", remedy)
    names = [name for name in (io.listdir(folder) if io.isdir(folder) else []) if is_lasting(name)]
    if JOURNAL in names and len(names) > 1:
        problem = f"'{folder}' has a {JOURNAL} without its first line, which describes the search."
        return Fault("save_dir", problem, "Restore that file, or choose another folder to start over.")
    if any(name != JOURNAL for name in names):
        remedy = "It is never deleted or mixed with a search: choose a folder that does not exist, or is empty."
        return Fault("save_dir", f"'{folder}' contains files that do not belong to a search of x-tune.", remedy)
    return None
