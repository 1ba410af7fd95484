"""The web server of the board: the page, its read-only API, and the access checks before every request."""

from __future__ import annotations

import asyncio
import json
import struct
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeVar

import numpy as np
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from xdpx.board.finding import RunFolder
from xdpx.board.index import Index
from xdpx.board.logs import LogName, borders_of, log_file, read_rows
from xdpx.board.page_files import page_text
from xdpx.board.parts import entries_of, entry_text, parts_of, path_of
from xdpx.board.predictions import Predictions, read_predictions
from xdpx.board.safe_files import NotShown, read_piece
from xdpx.reports.run_logs import Floats
from xdpx.utils import io
from xdpx.utils.storage import scheme_of
from xdpx.utils.web_guards import HEADERS, PAGE_POLICY, PAGE_TYPES, Asker, bearer, refusal

T = TypeVar("T")
COOKIE = "xdpx_board"
STRANGER_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
"""Policy for HTML pages in run folders: they are displayed, but cannot run scripts or load anything."""
MOST_FILES, MOST_COLUMNS = 2_000, 300
"""Limits per request."""
LONGEST_WAIT = 25.0
"""The most seconds that a request waits for new rows."""
LOCAL_TICK, REMOTE_TICK = 0.01, 3.0
"""Seconds between two checks of the files that a page waits for."""
ALIGNED = 8
"""Columns sent to the page begin at multiples of this many bytes, so that a browser can map their numbers directly."""
_KEPT_PREDICTIONS = 4
Seen = dict[int, tuple[str, str]]
"""Index of a requested log -> the path of its file, and a stamp that changes with it."""


@dataclass(frozen=True)
class Asked:
    """A request for columns of a log from a place on; `mark` is its index in the page's request."""

    mark: int
    run: RunFolder
    log: LogName
    columns: list[str]
    at: str


class Board:
    """The web application.

    Args:
        index: of the runs.
    """

    def __init__(self, index: Index) -> None:
        self.index = index
        self._store = io.store(index.root)
        self._tick = REMOTE_TICK if scheme_of(index.root) else LOCAL_TICK
        self._predictions: dict[str, tuple[str, Predictions]] = {}

    def application(self, token: str = "") -> web.Application:
        """Return the web application; every request needs `token`, unless it is ''."""
        app = web.Application(middlewares=[guard(token)], client_max_size=4 << 20)
        app.add_routes([
            web.get("/", self.page), web.get("/page/{name:[A-Za-z0-9_.-]+}", self.page_file),
            web.get("/api/runs", self.runs), web.post("/api/rows", self.rows), web.get("/api/epochs", self.epochs),
            web.get("/api/parts", self.parts), web.get("/api/text", self.text), web.get("/api/zip", self.zip),
            web.get("/api/predictions", self.predictions), web.get("/api/html", self.html),
        ])  # fmt: skip
        app.cleanup_ctx.append(self._looking)
        return app

    async def _looking(self, app: web.Application) -> AsyncIterator[None]:
        thread = threading.Thread(target=self.index.keep_fresh, name="board", daemon=True)
        thread.start()
        yield
        self.index.close()
        await asyncio.to_thread(thread.join, 2.0)

    # ---- the page itself

    async def page(self, request: web.Request) -> web.StreamResponse:
        """Return the page."""
        return _file("index.html")

    async def page_file(self, request: web.Request) -> web.StreamResponse:
        """Return a static file of the page."""
        return _file(request.match_info["name"])

    # ---- runs and their curves

    async def runs(self, request: web.Request) -> web.StreamResponse:
        """Return the rows of the table that changed after a version."""
        changes = self.index.since(_number(request, "since", 0))
        return _json({**vars(changes), "root": io.name(self.index.root) or self.index.root})

    async def rows(self, request: web.Request) -> web.StreamResponse:
        """Return rows that were added to logs; wait for some if requested."""
        asked, wait = self._asked(await _body(request))
        seen: Seen = {}
        until = asyncio.get_running_loop().time() + wait
        while True:
            answers = await asyncio.to_thread(self._news, asked, seen)
            if answers or asyncio.get_running_loop().time() >= until:
                return web.Response(body=packed(answers), content_type="application/octet-stream")
            await asyncio.sleep(self._tick)

    def _asked(self, body: dict[str, object]) -> tuple[list[Asked], float]:
        files, wait = body.get("files"), body.get("wait")
        if not isinstance(files, list) or len(files) > MOST_FILES:
            raise web.HTTPBadRequest(text=f"files: at most {MOST_FILES} per request.")
        wanted = [each for each in files if isinstance(each, dict)]
        runs = dict(self.index.all_of([str(each.get("run")) for each in wanted]))
        asked = []
        for mark, each in enumerate(wanted):
            log, columns, run = each.get("log"), each.get("columns"), runs.get(str(each.get("run")))
            if run is None or log not in {"train", "valid"} or not isinstance(columns, list):
                continue
            names = [str(name) for name in columns[:MOST_COLUMNS]]
            asked.append(Asked(mark, run, log, names, str(each.get("at") or "")))
        seconds = float(wait) if isinstance(wait, int | float) else 0.0
        return asked, min(max(seconds, 0.0), LONGEST_WAIT)

    def _news(self, asked: list[Asked], seen: Seen) -> list[tuple[dict[str, object], dict[str, Floats]]]:
        """Return what is new in logs. `seen` keeps stamps between calls, so that unchanged files are not read."""
        found: list[tuple[dict[str, object], dict[str, Floats]]] = []
        for each in asked:
            path, before = seen.get(each.mark) or (log_file(each.run, each.log), "")
            entry = self._store.entry(path) if path else None
            stamp = f"{entry.size} {entry.tag}" if entry else ""
            seen[each.mark] = path, stamp
            if stamp == before:
                continue
            rows = read_rows(each.run, each.log, each.columns, each.at, root=self.index.root)
            if rows is not None:
                found.append(({"mark": each.mark, "at": rows.at, "anew": rows.anew}, dict(rows.columns)))
        return found

    async def epochs(self, request: web.Request) -> web.StreamResponse:
        """Return the steps at which the epochs of a run begin."""
        run = self._run(request)
        return _json({"borders": await asyncio.to_thread(borders_of, run, self.index.root)})

    # ---- what else is in a run

    def _run(self, request: web.Request) -> RunFolder:
        run = self.index.find(request.query.get("run", ""))
        if run is None:
            raise web.HTTPNotFound(text="This run no longer exists.")
        return run

    def _path(self, request: web.Request, *kinds: str) -> str:
        return path_of(self._run(request), request.query.get("name", ""), kinds, self.index.root)

    async def parts(self, request: web.Request) -> web.StreamResponse:
        """Return the files of a run that can be viewed, by kind."""
        return _json(await asyncio.to_thread(parts_of, self._run(request), self.index.root))

    async def text(self, request: web.Request) -> web.StreamResponse:
        """Return a piece of a text."""
        offset = _number(request, "offset", 0)
        return await _shown(lambda: asdict(read_piece(self._path(request, "config", "log"), offset)))

    async def zip(self, request: web.Request) -> web.StreamResponse:
        """Return the file list of a code snapshot, or one of its files."""
        entry = request.query.get("entry")
        if entry is None:
            return await _shown(lambda: {"entries": entries_of(self._path(request, "code"))})
        return await _shown(lambda: {"text": entry_text(self._path(request, "code"), entry)})

    async def predictions(self, request: web.Request) -> web.StreamResponse:
        """Return some rows of a prediction file."""
        start, count = max(0, _number(request, "start", 0)), min(500, max(1, _number(request, "count", 100)))
        errors_first = request.query.get("order", "errors") == "errors"
        words = request.query.get("words", "")

        def page() -> dict[str, object]:
            path = self._path(request, "predictions")
            return self._read(path).page(start, count, errors_first=errors_first, words=words)

        return await _shown(page)

    def _read(self, path: str) -> Predictions:
        entry = io.store(path).entry(path)
        tag = f"{entry.size} {entry.tag}" if entry else ""
        known = self._predictions.get(path)
        if known and known[0] == tag:
            return known[1]
        found = read_predictions(path)
        while len(self._predictions) >= _KEPT_PREDICTIONS:
            self._predictions.pop(next(iter(self._predictions)), None)
        self._predictions[path] = (tag, found)
        return found

    async def html(self, request: web.Request) -> web.StreamResponse:
        """Return an HTML page that x-eval wrote, with scripts disabled."""
        try:
            piece = await asyncio.to_thread(lambda: read_piece(self._path(request, "pages"), 0, 16 << 20))
        except NotShown as error:
            raise web.HTTPNotFound(text=str(error)) from error
        headers = {"Content-Security-Policy": STRANGER_POLICY}
        return web.Response(text=piece.text, content_type="text/html", headers=headers)


def _file(name: str) -> web.Response:
    kind = PAGE_TYPES.get(name[name.rfind(".") :])
    try:
        text = page_text(name) if kind else ""
    except OSError:
        text = ""
    if not text:
        raise web.HTTPNotFound(text="There is no such file.")
    return web.Response(text=text, content_type=kind, charset="utf-8", headers={"Cache-Control": "no-cache"})


async def _shown(read: Callable[[], dict[str, object]]) -> web.Response:
    """Return the result of `read` as JSON, or status 404 with the reason if the file is not shown."""
    try:
        return _json(await asyncio.to_thread(read))
    except NotShown as error:
        return web.Response(status=404, text=str(error))


async def _body(request: web.Request) -> dict[str, object]:
    try:
        body = json.loads(await request.text())
    except (ValueError, RecursionError) as error:
        raise web.HTTPBadRequest(text="The request is not JSON.") from error
    if not isinstance(body, dict):
        raise web.HTTPBadRequest(text="The request is not a JSON object.")
    return body


def _number(request: web.Request, name: str, default: int) -> int:
    try:
        return int(request.query.get(name, default))
    except ValueError as error:
        raise web.HTTPBadRequest(text=f"{name}: is not a whole number.") from error


def _json(content: object) -> web.Response:
    return web.Response(
        text=json.dumps(content, allow_nan=False, separators=(",", ":")), content_type="application/json"
    )


def packed(answers: Sequence[tuple[Mapping[str, object], Mapping[str, Floats]]]) -> bytes:
    """Return (facts, columns) of some logs as bytes.

    The first four bytes are the length of the JSON header, an array with the facts, column names and row count of each
    log. It is padded with blanks so that the columns start at a multiple of eight; they are little-endian float64.
    """
    heads = []
    bodies = []
    for facts, columns in answers:
        length = len(next(iter(columns.values()), ()))
        heads.append({**facts, "columns": list(columns), "length": length})
        bodies += [np.ascontiguousarray(values, "<f8").tobytes() for values in columns.values()]
    text = json.dumps(heads, allow_nan=False).encode()
    text += b" " * (-(len(text) + 4) % ALIGNED)
    return b"".join([struct.pack("<I", len(text)), text, *bodies])


def guard(token: str) -> Middleware:
    """Return the middleware that refuses or handles a request, and adds security headers to every response.

    A token ('' for none) is passed once in the URL, and in a cookie from then on.
    """

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        headers = request.headers
        given = (request.query.get("token", ""), request.cookies.get(COOKIE, ""))
        tokens = (*given, bearer(headers.get("Authorization", "")))
        asker = Asker(headers.get("Host", ""), request.path, headers.get("Sec-Fetch-Site", "none"), tokens)
        refused = refusal(asker, token, server="x-board")
        if refused is not None:
            answer: web.StreamResponse = web.Response(status=refused.status, text=refused.text)
        elif token and "token" in request.query:
            answer = web.Response(status=303, headers={"Location": request.path})
            answer.set_cookie(COOKIE, token, httponly=True, samesite="Lax", path="/")
        else:
            try:
                answer = await handler(request)
            except web.HTTPException as error:
                answer = web.Response(status=error.status, text=error.text or error.reason)
        answer.headers.update({name: value for name, value in HEADERS.items() if name not in answer.headers})
        answer.headers.setdefault("Content-Security-Policy", PAGE_POLICY)
        return answer

    return guarded
