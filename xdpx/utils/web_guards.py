"""Who may ask a web server of ours for what: this machine alone, or whoever has the token. The same for all servers."""

from __future__ import annotations

import hmac
import ipaddress
from typing import NamedTuple
from urllib.parse import urlsplit

SHORTEST_TOKEN = 16
"""Letters of the shortest token that is taken."""
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""What a page of ours may load: its own files, and nothing from elsewhere."""
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""What stands in every answer that does not say otherwise itself."""


class Asker(NamedTuple):
    """What a request says of who sends it.

    Attributes:
        host: its header `Host`.
        path: of its address.
        site: its header `Sec-Fetch-Site`, by which a browser tells whether a page of another site asks; '' for none.
        tokens: whatever it gives as a token: in the address, in a cookie, as `bearer` of its header `Authorization`.
    """

    host: str
    path: str
    site: str
    tokens: tuple[str, ...]


class Refusal(NamedTuple):
    """Why a request is not answered: the status of HTTP, and a sentence for people."""

    status: int
    text: str


def is_this_machine(host: str) -> bool:
    """Tell whether a host names this machine for itself."""
    name = host.strip("[]")
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def bearer(authorization: str) -> str:
    """Return the token of a header `Authorization`, '' for none."""
    return authorization.removeprefix("Bearer ")


def refusal(asker: Asker, token: str, *, server: str) -> Refusal | None:
    """Return why a request is refused, None where it is to be answered.

    Without a token only names of this machine are answered: a page of another place whose name was made to lead here
    (DNS rebinding) sends that name as Host. With one, every request needs it.

    Args:
        asker: who asks.
        token: '' for none.
        server: its command, for the sentence.
    """
    if not token and not is_this_machine(_name_of(asker.host)):
        return Refusal(403, f"{server} answers to names of this machine only, such as 127.0.0.1.\n")
    if asker.site == "cross-site" and asker.path != "/":
        return Refusal(403, f"{server} answers to its own page only.\n")
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
