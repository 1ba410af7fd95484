"""Checks before every request: authentication, and limits on its size and time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from xdpx.serving.shapes import Limits
from xdpx.utils.web_guards import HEADERS, PAGE_POLICY, Asker, bearer, refusal

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "xdpx_serve"
OPEN_TO_ALL = frozenset({"/health"})
"""Paths answered without a token: health checks of load balancers use them, and they reveal nothing."""
_HEADERS = [
    (name.lower().encode(), value.encode())
    for name, value in {**HEADERS, "Content-Security-Policy": PAGE_POLICY}.items()
]


class Guard:
    """ASGI middleware that refuses requests.

    Args:
        inner: the application behind it.
        token: that every request must carry; '' for none: then only requests to a host name of this machine pass.
        limits: on the size and time of a request.
        is_ending: returns whether the server is ending, so that connections are closed after their answer.
    """

    def __init__(self, inner: Application, token: str, limits: Limits, is_ending: Callable[[], bool]) -> None:
        self._inner, self._token, self._limits, self._is_ending = inner, token, limits, is_ending

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await (self._inner(scope, receive, send) if scope["type"] == "lifespan" else _nothing(scope, send))
            return
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        query = parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        answer = self._refusal(scope["path"], headers, query)
        if answer is None and self._token and "token" in query and scope["method"] == "GET":
            answer = Response(status_code=303, headers={"Location": "/"})
            answer.set_cookie(COOKIE, self._token, httponly=True, samesite="lax", path="/")
        sending = self._with_headers(send)
        if answer is not None:
            await answer(scope, receive, sending)
            return
        await self._inner(scope, self._measured(receive), sending)

    def _refusal(self, path: str, headers: dict[bytes, str], query: dict[str, list[str]]) -> Response | None:
        given = (*query.get("token", ()), *_cookies(headers.get(b"cookie", "")))
        tokens = (*given, bearer(headers.get(b"authorization", "")))
        asker = Asker(headers.get(b"host", ""), path, headers.get(b"sec-fetch-site", "none"), tokens)
        refused = None if self._token and path in OPEN_TO_ALL else refusal(asker, self._token, server="x-serve")
        if refused is not None:
            extra = {"WWW-Authenticate": "Bearer"} if refused.status == 401 else {}
            return JSONResponse({"detail": refused.text.strip()}, refused.status, headers=extra)
        length = headers.get(b"content-length", "0")
        if length.isdecimal() and int(length[:20]) > self._limits.body:
            return JSONResponse({"detail": _too_large(self._limits)}, 413, headers={"Connection": "close"})
        return None

    def _measured(self, receive: Receive) -> Receive:
        """Return a `receive` that refuses a body that is too large or takes too long to arrive."""
        seen, until = 0, asyncio.get_running_loop().time() + self._limits.seconds

        async def measured() -> Message:
            nonlocal seen
            if seen < 0:  # the body is complete; the next message can only be a disconnect
                return await receive()
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                text = f"The request did not arrive within {self._limits.seconds:g} seconds."
                raise HTTPException(408, text, {"Connection": "close"}) from None
            seen += len(message.get("body", b""))
            if seen > self._limits.body:
                raise HTTPException(413, _too_large(self._limits), {"Connection": "close"})
            seen = seen if message.get("more_body") else -1
            return message

        return measured

    def _with_headers(self, send: Send) -> Send:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                there = {name.lower() for name, _ in message.get("headers", ())}
                added = [each for each in _HEADERS if each[0] not in there]
                if self._is_ending() and b"connection" not in there:
                    added.append((b"connection", b"close"))
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        return sending


def _too_large(limits: Limits) -> str:
    return f"The request is larger than {limits.body:,} bytes. Split it into several."


def _cookies(header: str) -> list[str]:
    parts = (each.strip().partition("=") for each in header.split(";"))
    return [value for name, _, value in parts if name == COOKIE]


async def _nothing(scope: Scope, send: Send) -> None:
    """Refuse a connection that is not an HTTP request, such as a WebSocket."""
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
