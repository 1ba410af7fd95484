"""Some runs as one standalone HTML file with everything that the board shows of them; it makes no requests."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import time
from collections.abc import Sequence
from dataclasses import asdict
from html import escape

import numpy as np

from xdpx.board.finding import RunFolder, listing
from xdpx.board.logs import LogName, borders_of, read_rows
from xdpx.board.page_files import page_text
from xdpx.board.parts import parts_of, path_of
from xdpx.board.predictions import read_predictions
from xdpx.board.safe_files import NotShown, read_piece
from xdpx.board.summary import Summary, all_shown, compared, differences, lower_is_better, run_id, summary_of
from xdpx.reports.run_logs import Columns, kept_rows
from xdpx.utils import io

MOST_ROWS = 4_000
"""Rows of a log that are kept, or somewhat more if the extremes of many columns are in different rows."""
MOST_TEXT = 1 << 16
MOST_PREDICTIONS = 200
"""Rows of a prediction file that are kept: the most confident errors first."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
_LINK = re.compile(r'<link rel="stylesheet" href="page/([\w.]+)">')
_SCRIPT = re.compile(r'<script src="page/([\w.]+)"></script>')
_WHOLE = ("epoch", "step", "train_wall")
"""Columns that are kept in double precision."""


def page_of(folders: Sequence[str]) -> str:
    """Return a page with these runs as HTML.

    Raises:
        FileNotFoundError: one of the folders does not exist or is empty.
    """
    paths = dict.fromkeys(io.plain(folder) for folder in folders)
    runs = [RunFolder(path, listing(path)) for path in paths]
    missing = [run.path for run in runs if not run.files]
    if missing:
        raise FileNotFoundError(f"{missing[0]}: no such folder, or it is empty.")
    title = io.name(runs[0].path) if len(runs) == 1 else f"{len(runs)} runs"
    return _html(_data(runs), title)


def _data(runs: Sequence[RunFolder]) -> dict[str, object]:
    summaries = [_named(summary_of(run, run.path), run, runs) for run in runs]
    common: dict[str, dict[str, str]] = {}
    for each in summaries:
        if each.settings:
            each.settings = differences(each.settings, common.setdefault(each.door, compared(each.settings)))
    headers: dict[tuple[str, ...], int] = {}
    rows = [each.facts(headers) for each in summaries]
    names = {run_id(run.path): run for run in runs}
    parts = {name: _parts(run) for name, run in names.items()}
    return {
        "runs": {
            "rows": rows, "headers": list(headers), "lower": lower_is_better(headers), "version": 1,
            "more": False,
            "common": {door: all_shown(each) for door, each in common.items()},
            "total": len(runs), "whole": True, "root": f"written {time.strftime('%Y-%m-%d %H:%M')}",
        },
        "logs": {name: {log: _columns(run, log) for log in ("train", "valid")} for name, run in names.items()},
        "borders": {name: borders_of(run, run.path) for name, run in names.items()},
        "parts": {name: {kind: list(found) for kind, found in each.items()} for name, each in parts.items()},
        "texts": {name: each["config"] | each["log"] for name, each in parts.items()},
        "predictions": {name: each["predictions"] for name, each in parts.items()},
    }  # fmt: skip


def _named(summary: Summary, run: RunFolder, runs: Sequence[RunFolder]) -> Summary:
    """Name a run by its folder, or by its path if several folders have the same name."""
    same = sum(io.name(run.path) == io.name(each.path) for each in runs)
    summary.name = (io.name(run.path) if same == 1 else run.path).encode("utf-8", "replace").decode()
    summary.last = [None if value is None or not math.isfinite(value) else value for value in summary.last]
    return summary


def _columns(run: RunFolder, log: LogName) -> dict[str, tuple[int, str]]:
    """Return all columns of a log as (bytes per number, numbers in base64), a long log thinned."""
    first = summary_of(run, run.path)
    rows = read_rows(run, log, first.train if log == "train" else first.valid, "", root=run.path)
    columns: Columns = rows.columns if rows else {}
    count = len(columns.get("step", ()))
    if count > MOST_ROWS:
        kept = kept_rows(columns, -(-count // (MOST_ROWS // 16)))
        columns = {name: values[kept] for name, values in columns.items()}
    return {name: _packed(name, values) for name, values in columns.items()}


def _packed(name: str, values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[int, str]:
    size = 8 if name in _WHOLE else 4
    with np.errstate(over="ignore"):
        data = np.ascontiguousarray(values, f"<f{size}").tobytes()
    return size, base64.b64encode(data).decode()


def _parts(run: RunFolder) -> dict[str, dict[str, object]]:
    """Return {kind: {file: content}} of the configs, logs and predictions; code and pages are left out."""
    listed = parts_of(run, run.path)
    found: dict[str, dict[str, object]] = {"config": {}, "log": {}, "predictions": {}}
    for kind, offset in (("config", 0), ("log", -MOST_TEXT)):
        for name in listed[kind]:
            if not name.endswith((".tsv", ".jsonl")):
                try:
                    found[kind][name] = asdict(read_piece(path_of(run, name, [kind], run.path), offset, MOST_TEXT))
                except NotShown:
                    continue
    for name in listed["predictions"]:
        try:
            read = read_predictions(path_of(run, name, ["predictions"], run.path))
        except NotShown:
            continue
        found["predictions"][name] = read.page(0, MOST_PREDICTIONS, errors_first=True)
    return found


def _html(data: dict[str, object], title: str) -> str:
    text = json.dumps(data, allow_nan=False, ensure_ascii=False).replace("<", "\\u003c")
    text = text.encode("utf-8", "replace").decode()
    page = _LINK.sub(lambda found: f"<style>{page_text(found[1])}</style>", page_text("index.html"))
    scripts = [page_text(name).replace("</script", "<\\/script") for name in _SCRIPT.findall(page)]
    first = page.index('<script src="page/')
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    meta = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}; script-src {hashes}">\n<title>'
    head = page[:first].replace("<title>", meta, 1)
    shown = escape(title, quote=False).encode("utf-8", "replace").decode()
    head = head.replace("<title>XDPX board</title>", f"<title>{shown}</title>")
    body = f'<script id="data" type="application/json">{text}</script>\n'
    return head + body + "\n".join(f"<script>{script}</script>" for script in scripts) + "\n</body>\n</html>\n"


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
