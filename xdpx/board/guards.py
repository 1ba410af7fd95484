"""Who may ask the board for what: this machine alone, or whoever has the token."""

from __future__ import annotations

import hmac
import ipaddress
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

COOKIE = "xdpx_board"
SHORTEST_TOKEN = 16
"""Letters of the shortest token that is taken."""
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
STRANGER_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
"""For a page that lies in a run: it is shown, and nothing in it runs or fetches anything."""
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def is_this_machine(host: str) -> bool:
    """Tell whether a host names this machine for itself."""
    name = host.strip("[]")
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def guard(token: str) -> Middleware:
    """Return what stands in front of every answer.

    Without a token only names of this machine are answered: a page of another place whose name was made to lead here
    (DNS rebinding) sends that name as Host. With one, every request needs it: in the address once, then as a cookie.

    Args:
        token: '' for none.
    """

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = _refusal(request, token)
        if refusal is not None:
            answer: web.StreamResponse = refusal
        elif token and "token" in request.query:
            answer = web.Response(status=303, headers={"Location": request.path})
            answer.set_cookie(COOKIE, token, httponly=True, samesite="Lax", path="/")
        else:
            answer = await _handled(request, handler)
        answer.headers.update({name: value for name, value in _HEADERS.items() if name not in answer.headers})
        answer.headers.setdefault("Content-Security-Policy", PAGE_POLICY)
        return answer

    return guarded


async def _handled(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        return web.Response(status=error.status, text=error.text or error.reason)


def _refusal(request: web.Request, token: str) -> web.Response | None:
    if not token and not is_this_machine(_host_of(request)):
        return web.Response(status=403, text="The board answers to names of this machine only, such as 127.0.0.1.\n")
    if request.headers.get("Sec-Fetch-Site", "none") == "cross-site" and request.path != "/":
        return web.Response(status=403, text="The board answers to its own page only.\n")
    if token and not _has_token(request, token):
        return web.Response(status=401, text="Open the address that x-board printed, which ends in ?token=...\n")
    return None


def _host_of(request: web.Request) -> str:
    try:
        return urlsplit(f"//{request.headers.get('Host', '')}").hostname or ""
    except ValueError:
        return ""


def _has_token(request: web.Request, token: str) -> bool:
    bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
    given = [request.query.get("token", ""), request.cookies.get(COOKIE, ""), bearer]
    return any(hmac.compare_digest(each.encode("utf-8", "replace"), token.encode()) for each in given)
