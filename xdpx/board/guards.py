"""Middleware of the board: access checks, and security headers on every response."""

from __future__ import annotations

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from xdpx.utils.web_guards import HEADERS, PAGE_POLICY, Asker, bearer, refusal

COOKIE = "xdpx_board"
STRANGER_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
"""Policy for HTML pages in run folders: they are displayed, but cannot run scripts or load anything."""


def guard(token: str) -> Middleware:
    """Return the middleware that rejects a request or handles it, and adds the headers to every response.

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
