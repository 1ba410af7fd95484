"""Access control of our web servers: without a token only this machine is served, with one everyone who has it."""

from __future__ import annotations

import hmac
import ipaddress
from typing import NamedTuple
from urllib.parse import urlsplit

SHORTEST_TOKEN = 16
"""Minimum length of a token, in characters."""
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy of our pages: they may load only their own files."""
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Default headers of every response."""
PAGE_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css"}
"""Content types of the files of our pages by their endings; other files are not served as such."""


class Asker(NamedTuple):
    """The parts of a request that decide whether it is allowed.

    Attributes:
        host: its header `Host`.
        path: of its URL.
        site: its header `Sec-Fetch-Site`, which says whether a page of another site sent it; '' for none.
        tokens: all tokens it contains: in the URL, in a cookie, and the `bearer` token of its header `Authorization`.
    """

    host: str
    path: str
    site: str
    tokens: tuple[str, ...]


class Refusal(NamedTuple):
    """Why a request is refused: the HTTP status, and a sentence for people."""

    status: int
    text: str


def is_this_machine(host: str) -> bool:
    """Return whether a host is `localhost` or a loopback address."""
    name = host.strip("[]")
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def bearer(authorization: str) -> str:
    """Return the token of a header `Authorization: Bearer …`; a header without that scheme is returned unchanged.

    Source: RFC 9110, section 11.1: schemes are case-insensitive.
    """
    scheme, _, token = authorization.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else authorization


def refusal(asker: Asker, token: str, *, server: str) -> Refusal | None:
    """Return why a request is refused, None if it is allowed.

    Without a token, `Host` must be a name of this machine: a foreign page whose domain was pointed here (DNS rebinding)
    sends its own name. With a token, every request must contain it. Requests of other sites' pages are refused, except
    for `/`.

    Args:
        asker: the request.
        token: of the server, '' for none.
        server: its command, for the sentence.
    """
    if not token and not is_this_machine(_name_of(asker.host)):
        return Refusal(403, f"{server} accepts only names of this machine, such as 127.0.0.1.\n")
    if asker.site == "cross-site" and asker.path != "/":
        return Refusal(403, f"{server} accepts requests from its own page only.\n")
    given = (each.encode("utf-8", "replace") for each in asker.tokens)
    if token and not any(hmac.compare_digest(each, token.encode()) for each in given):
        advice = f"Open the address that {server} printed, which ends in ?token=..., or send it as a bearer token."
        return Refusal(401, f"{advice}\n")
    return None


def _name_of(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
