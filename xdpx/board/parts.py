"""The files of a run that can be viewed besides curves: settings, logs, code, predictions, pages."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable

from xdpx.board.finding import RunFolder, listing
from xdpx.board.safe_files import NotShown, openable
from xdpx.metrics.judging import NUMBER_COLUMNS, TAG_COLUMNS
from xdpx.reports.metric_lines import METRICS_FILE
from xdpx.reports.trackers.json_lines import FILE_NAME as JSON_LOG
from xdpx.utils import io
from xdpx.utils.redaction import redact

CONFIGS = (
    "args.py", "starter_config.hjson", "prepro.args.py", "training_args.json", "config.json", "generation_config.json",
    "experiment_cls_vars.txt", "model_params.txt", "input_specs.json", "run.json", "status.json", "all_results.json",
    "temperature.json",
)  # fmt: skip
NO_PREDICTIONS = frozenset({METRICS_FILE, JSON_LOG, "scores.tsv", "results.tsv", "decisions.tsv", "importance.tsv"})
LONGEST_HEADER = 1 << 16
LARGEST_ENTRY = 2 << 20
MOST_LISTED = 500
"""The most files of one kind that are listed."""
MOST_ENTRIES = 5_000

Parts = dict[str, list[str]]
"""Kind -> file names relative to the folder of the run, `../` for its parent."""


def parts_of(run: RunFolder, root: str) -> Parts:
    """Return the files of a run that can be viewed, by kind."""
    names = [name for name, entry in run.files.items() if not entry.folder]
    configs = [name for name in CONFIGS if name in names]
    configs += [name for name in names if ".resume-" in name and not name.endswith(".zip")]
    if run.newest_checkpoint:
        inside = _below(run, run.newest_checkpoint, (".json",))
        configs += [name for name in inside if io.name(name) in CONFIGS]
    stacks = _below(run, "stacks", (".txt",))
    logs = [name for name in ("log.txt", "train.log.tsv", "valid.log.tsv", METRICS_FILE, JSON_LOG) if name in names]
    return {
        "config": configs,
        "log": [*logs, *stacks, *(name for name in names if name.endswith((".log", ".out", ".err")))][:MOST_LISTED],
        "code": [name for name in names if name.startswith("snapshot") and name.endswith(".zip")],
        "predictions": _predictions(run, root)[:MOST_LISTED],
        "pages": _below(run, "eval", (".html",)),
    }


def _predictions(run: RunFolder, root: str) -> list[str]:
    own = [name for name, entry in run.files.items() if not entry.folder and _holds_predictions(entry.path, root)]
    deeper = [
        name
        for folder in ("eval_out", "decoder_out", "infer_out")
        for inner in _folders(run, folder)
        for name in _below(run, inner, (".jsonl",))
    ]
    above: list[str] = []
    if io.plain(run.path) != io.plain(root):  # x-run writes them next to the run
        above = [f"../{name}" for name, entry in listing(io.parent(run.path)).items()
                 if not entry.folder and _holds_predictions(entry.path, root)]  # fmt: skip
    return [*own, *deeper, *above]


def _holds_predictions(path: str, root: str) -> bool:
    """Return whether a file is a table with a column of predictions, judged by its first line."""
    name = io.name(path)
    if not name.endswith((".tsv", ".csv", ".jsonl")) or ".log." in name or name in NO_PREDICTIONS:
        return False
    try:
        with io.open_partly(openable(path, root)) as file:
            line = file.readline(LONGEST_HEADER).decode("utf-8-sig", "replace")
    except (OSError, NotShown):
        return False
    words = [word.strip(' "').lower() for word in re.split(r"[\t,:{]", line.strip())]
    by_x_pred = name.endswith(".tsv") and words[-1] in {*NUMBER_COLUMNS, *TAG_COLUMNS}  # it appends them
    return by_x_pred or bool({"pred", "prediction"} & {*words})


def _folders(run: RunFolder, name: str) -> Iterable[str]:
    if name not in run.files or not run.files[name].folder:
        return []
    inside = listing(run.files[name].path)
    return [name, *(f"{name}/{inner}" for inner, entry in inside.items() if entry.folder)]


def _below(run: RunFolder, folder: str, endings: tuple[str, ...]) -> list[str]:
    inside = listing(io.join(run.path, folder))
    return [f"{folder}/{name}" for name in inside if name.endswith(endings) and not inside[name].folder][:MOST_LISTED]


def path_of(run: RunFolder, name: str, kinds: Iterable[str], root: str) -> str:
    """Return the path of a file that `parts_of` lists under one of `kinds`; no other file can be requested.

    Raises:
        NotShown: the file is not among them, or must not be opened.
    """
    parts = parts_of(run, root)
    if not any(name in parts[kind] for kind in kinds):
        raise NotShown("There is no such file in this run.")
    if name.startswith("../"):
        return openable(io.join(io.parent(run.path), name.removeprefix("../")), root)
    return openable(io.join(run.path, name), root)


def entries_of(path: str) -> list[dict[str, object]]:
    """Return the name and size of each file in a zip archive.

    Raises:
        NotShown: the archive is damaged.
    """
    try:
        with io.open_partly(path) as file, zipfile.ZipFile(file) as archive:
            infos = [info for info in archive.infolist() if not info.is_dir()]
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise NotShown(f"{io.name(path)} is damaged ({error}).") from error
    return [{"name": info.filename, "size": info.file_size} for info in infos[:MOST_ENTRIES]]


def entry_text(path: str, name: str) -> str:
    """Return the text of a file in a zip archive; of a large one, the beginning.

    Raises:
        NotShown: there is no file with this name, or the archive is damaged.
    """
    try:
        with io.open_partly(path) as file, zipfile.ZipFile(file) as archive, archive.open(name) as source:
            return redact(source.read(LARGEST_ENTRY).decode("utf-8", "replace"))
    except (OSError, zipfile.BadZipFile, ValueError, KeyError, NotImplementedError, RuntimeError, EOFError) as error:
        raise NotShown(f"{name} cannot be read ({error}).") from error
    except zipfile.zlib.error as error:  # type: ignore[attr-defined]
        raise NotShown(f"{name} is damaged ({error}).") from error
