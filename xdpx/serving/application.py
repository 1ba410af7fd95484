"""The web application of the server: its endpoints, and what they return."""

from __future__ import annotations

import json
import math
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.exceptions import HTTPException

from xdpx import __version__
from xdpx.config.faults import ConfigError
from xdpx.serving.batching import Closed, Full
from xdpx.serving.counting import Counts
from xdpx.serving.guard import Guard
from xdpx.serving.models import Model, Models
from xdpx.serving.pages import docs_page, file_text
from xdpx.serving.shapes import (
    Answer,
    Health,
    Limits,
    Many,
    ModelFacts,
    One,
    Problem,
    answers_of,
    first_without_number,
    rows_of,
)
from xdpx.utils.web_guards import PAGE_TYPES

SUMMARY = "Ask trained models for labels and their probabilities."
SHOWN_PROBLEMS = 5
NO_JSON = "The body is not JSON."
NO_KIND = "The request does not say that its body is JSON."
SEND_JSON = "Send the header Content-Type: application/json."
UNREADABLE = "There was an error parsing the body"
"""FastAPI's message for JSON that is nested too deeply, or has a number with too many digits."""
_REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": text}
    for status, text in {
        400: NO_JSON, 401: "The token is missing or wrong.", 403: "The Host header names another machine.",
        404: "There is no such model.", 408: "The request took too long to arrive.", 413: "The request is too large.",
        422: "A row is not valid input of the model, or is too long.", 429: "Too many waiting rows; see Retry-After.",
        503: "The server is shutting down.",
    }.items()
}  # fmt: skip


class Ending:
    """Whether the server is ending: set once, and read by all."""

    begun = False


def application(models: Models, counts: Counts, *, token: str, limits: Limits, ending: Ending) -> Guard:
    """Return the application of a server.

    Args:
        models: the models to serve.
        counts: the Prometheus counters.
        token: that every request must carry, '' for none.
        limits: on the size of a request.
        ending: whether connections are to be closed after their answer.
    """

    @asynccontextmanager
    async def living(_: FastAPI) -> AsyncGenerator[None]:
        models.watch()
        yield
        models.close()

    app = FastAPI(
        title="XDPX", summary=SUMMARY, version=__version__, docs_url=None, redoc_url=None, lifespan=living,
        responses={code: _REFUSALS[code] for code in (401, 403)},
    )  # fmt: skip
    _add_predictions(app, models, counts)
    _add_facts(app, models, counts, ending)
    _add_pages(app)
    app.add_exception_handler(RequestValidationError, _told_invalid)
    app.add_exception_handler(HTTPException, _told)
    app.add_exception_handler(Exception, _told_failed)
    return Guard(app, token, limits, lambda: ending.begun)


def _add_predictions(app: FastAPI, models: Models, counts: Counts) -> None:
    told: dict[str, Any] = {"responses": {code: _REFUSALS[code] for code in (400, 404, 408, 413, 422, 429, 503)}}

    async def answered(name: str | None, body: One | Many) -> list[dict[str, Any]]:
        return await _answered(models, counts, name, body)

    @app.post("/predict", tags=["predict"], response_model=Answer, **told)
    async def predict(body: One) -> Response:
        """Return the answer of the first model for one row."""
        return _json((await answered(None, body))[0])

    @app.post("/predict_batch", tags=["predict"], response_model=list[Answer], **told)
    async def predict_batch(body: Many) -> Response:
        """Return the answers of the first model for several rows, in their order."""
        return _json(await answered(None, body))

    @app.post("/models/{name}/predict", tags=["predict"], response_model=Answer, **told)
    async def predict_by(name: str, body: One) -> Response:
        """Return the answer of a model for one row."""
        return _json((await answered(name, body))[0])

    @app.post("/models/{name}/predict_batch", tags=["predict"], response_model=list[Answer], **told)
    async def predict_batch_by(name: str, body: Many) -> Response:
        """Return the answers of a model for several rows, in their order."""
        return _json(await answered(name, body))


async def _answered(models: Models, counts: Counts, name: str | None, body: One | Many) -> list[dict[str, Any]]:
    """Return the answers for a body, and count them.

    Raises:
        HTTPException: there are none; with what went wrong.
    """
    model, begun = _model(models, name), time.perf_counter()
    rows, status = rows_of(body), 500
    try:
        predictions = await model.predict(rows)
        odd = first_without_number(predictions)
        if odd is not None:
            status = 422
            raise HTTPException(status, f"texts[{odd}]: the model computes NaN or infinity for this row.")
        found, status = answers_of(predictions, with_lists=model.gives_lists), 200
        counts.rows.labels(model.name).inc(len(rows))
        return found
    except ConfigError as error:
        status = 422
        raise HTTPException(status, " ".join(str(fault) for fault in error.faults)) from error
    except Full as error:
        status = 429
        wait = {"Retry-After": str(math.ceil(error.seconds))}
        raise HTTPException(status, f"{model.num_waiting:,} rows are waiting already: {error}.", wait) from error
    except Closed as error:
        status = 503
        raise HTTPException(status, "The server is shutting down.", {"Retry-After": "5"}) from error
    finally:
        counts.requests.labels(model.name, str(status)).inc()
        counts.seconds.labels(model.name).observe(time.perf_counter() - begun)


def _model(models: Models, name: str | None) -> Model:
    found = models.get(name)
    if found is None:
        there = ", ".join(each.name for each in models)
        raise HTTPException(404, f"There is no model of that name, but: {there}.")
    return found


def _add_facts(app: FastAPI, models: Models, counts: Counts, ending: Ending) -> None:
    @app.get("/models", tags=["server"], response_model=list[ModelFacts])
    async def all_models() -> Response:
        """Return what is known of each model; the first answers where none is named."""
        return _json([each.facts.model_dump() for each in models])

    @app.get("/models/{name}", tags=["server"], response_model=ModelFacts, responses={404: _REFUSALS[404]})
    async def one_model(name: str) -> Response:
        """Return what is known of a model."""
        return _json(_model(models, name).facts.model_dump())

    @app.head("/health", include_in_schema=False)
    @app.get("/health", tags=["server"], response_model=Health, responses={503: {"model": Health}})
    async def health() -> Response:
        """Report whether requests are accepted. Needs no token."""
        told = Health(
            status="ending" if ending.begun else "ok",
            models=[each.name for each in models],
            waiting=sum(each.num_waiting for each in models),
        )
        return _json(told.model_dump(), 503 if ending.begun else 200)

    @app.get("/metrics", tags=["server"], response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def metrics() -> Response:
        """Return what was counted, for Prometheus."""
        for each in models:
            counts.waiting.labels(each.name).set(each.num_waiting)
        return Response(counts.text(), media_type=counts.content_type)


def _add_pages(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return HTMLResponse(file_text("index.html"))

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return HTMLResponse(docs_page(app.openapi()))

    @app.get("/page/{name}", include_in_schema=False)
    async def page_file(name: str) -> Response:
        kind = PAGE_TYPES.get(name[name.rfind(".") :])
        text = file_text(name) if kind else ""
        if not text:
            raise HTTPException(404, "There is no such file.")
        return Response(text, media_type=kind, headers={"Cache-Control": "no-cache"})


def _json(content: object, status: int = 200) -> Response:
    return Response(json.dumps(content, allow_nan=False), status, media_type="application/json")


async def _told(request: Request, error: Exception) -> Response:
    del request
    assert isinstance(error, HTTPException)  # noqa: S101 - for the type checker: it is registered for these
    if error.detail == UNREADABLE:
        return JSONResponse({"detail": NO_JSON}, 400)
    return JSONResponse({"detail": _plain(str(error.detail))}, error.status_code, headers=error.headers)


async def _told_failed(request: Request, error: Exception) -> Response:
    """Answer after an unexpected error, which is logged with its traceback; the server continues."""
    del request
    return JSONResponse({"detail": f"The model failed ({type(error).__name__}); the server's log says why."}, 500)


async def _told_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - for the type checker: it is registered for these
    found, kind = error.errors(), request.headers.get("Content-Type", "")
    if kind and "json" not in kind.lower():
        return JSONResponse({"detail": f"{NO_JSON[:-1]}, but {_plain(kind)}. {SEND_JSON}"}, 400)
    if any(isinstance(each.get("input"), bytes) for each in found):  # it was not read as JSON
        return JSONResponse({"detail": f"{NO_KIND} {SEND_JSON}"}, 400)
    if any(each["type"] == "json_invalid" for each in found):
        return JSONResponse({"detail": NO_JSON}, 400)
    told = [f"{'.'.join(map(str, each['loc'][2:])) or 'body'}: {each['msg']}." for each in found[:SHOWN_PROBLEMS]]
    return JSONResponse({"detail": _plain(" ".join(told))}, 422)


def _plain(text: str) -> str:
    """Return a text that can be encoded in UTF-8: JSON may hold lone surrogates, which cannot."""
    return text.encode("utf-8", "replace").decode()
