"""Requests that a server must survive: drawn by schemathesis from its own OpenAPI schema, some damaged on purpose."""

from __future__ import annotations

import http.client
import json
import random
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

NAMED = 0.7
"""The share of requests to a model by its name that name one that is there."""
BROKEN = 0.3
"""The share of requests whose bytes are damaged after they were drawn."""
ODD_BODIES: tuple[bytes, ...] = (
    b"", b"null", b"[]", b"{", b"\xff\xfe\x00", b"[" * 50_000, b'{"a":' * 5_000, b"9" * 5_000, b"NaN",
    b'{"text": NaN}', b'{"text": "\\ud800"}', b'{"text": "\\u0000"}', b'{"texts": ["a", "\\udfff"]}',
    b'{"pairs": [["a"], []]}', b'"text"', b'{"text": "a", "text": ["b"]}', b"[" * 900 + b"]" * 900,
    '{"text": "\u202e\U0001f600\u200b\ufeff"}'.encode(),
)  # fmt: skip
ODD_HEADERS: tuple[dict[str, str], ...] = (
    {"Content-Type": "text/plain"}, {"Content-Type": "application/json; charset=utf-99"}, {"Content-Type": ""},
    {"Host": "attacker.example"}, {"Host": "[::1"}, {"Authorization": "Bearer \xe9"}, {"Cookie": "xdpx_serve=;=;;"},
    {"Sec-Fetch-Site": "cross-site"}, {"Content-Length": "-1"}, {"Content-Length": "99999999999999999999"},
    {"Transfer-Encoding": "chunked"}, {"Expect": "100-continue"}, {"Upgrade": "websocket", "Connection": "Upgrade"},
    {"X-Long": "a" * 20_000},
)  # fmt: skip
ODD_PATHS = (
    "/models/%00/predict", "/models/../predict", "/page/..%2f..%2fetc%2fpasswd", "//predict", "/predict?token=%ff",
    "/models/%F0%9F%98%80", "/page/%2e%2e/guard.py", "/openapi.json?a=" + "b" * 5_000,
)  # fmt: skip


def drawn(schema: dict[str, Any], count: int) -> list[tuple[str, str, bytes]]:
    """Return method, path and body of requests drawn from an OpenAPI schema, both such as fit it and such as do not."""
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis.errors import Unsatisfiable
    from schemathesis import GenerationMode

    found: list[tuple[str, str, bytes]] = []
    interface: Any = schemathesis.openapi.from_dict(schema)
    operations = [each.ok() for each in interface.get_all_operations()]
    each_count = max(10, count // (2 * len(operations)))
    for operation in operations:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            @settings(
                max_examples=each_count, database=None, deadline=None, phases=[Phase.generate], derandomize=True,
                suppress_health_check=list(HealthCheck),
            )  # fmt: skip
            @given(operation.as_strategy(generation_mode=mode))
            def draw(case: Any) -> None:
                asked = case.as_transport_kwargs()
                body = asked.get("data") or json.dumps(asked.get("json")).encode()
                path = urlsplit(asked["url"])
                found.append((asked["method"], path.path or "/", body if isinstance(body, bytes) else b""))

            with suppress(Unsatisfiable):  # what takes nothing can be asked for nothing wrong
                draw()
    return found


def requests_of(
    schema: dict[str, Any], name: str, count: int, seed: int
) -> Iterator[tuple[str, str, bytes, dict[str, str]]]:
    """Yield so many requests to a server with a model of that name: drawn ones, damaged ones, and odd ones."""
    random_of = random.Random(seed)
    pool = drawn(schema, min(count, 2_000))
    for _ in range(count):
        method, path, body = random_of.choice(pool)
        if path.startswith("/models/") and random_of.random() < NAMED:
            path = "/".join(["", "models", name, *path.split("/")[3:]])
        headers = {"Content-Type": "application/json"}
        if random_of.random() < BROKEN:
            kind = random_of.randrange(5)
            if kind == 0:
                place = random_of.randrange(len(body) + 1)
                body = body[:place] + random_of.randbytes(random_of.randrange(9)) + body[place + 1 :]
            elif kind == 1:
                method, path, body = "POST", "/predict_batch", random_of.choice(ODD_BODIES)
            elif kind == 2:
                headers |= random_of.choice(ODD_HEADERS)
            elif kind == 3:
                path = random_of.choice(ODD_PATHS)
            else:
                method = random_of.choice(("PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE"))
        yield method, path, body, headers


def attack(address: str, count: int, *, seed: int = 0, seconds: float = 20.0) -> Counter[int]:
    """Send so many requests, and return how many answers had which status; 0 where the connection was closed."""
    place = urlsplit(address)
    with urllib.request.urlopen(f"{address}/openapi.json", timeout=seconds) as answer:
        schema = json.load(answer)
    with urllib.request.urlopen(f"{address}/models", timeout=seconds) as answer:
        name = json.load(answer)[0]["name"]
    statuses: Counter[int] = Counter()
    line = http.client.HTTPConnection(str(place.hostname), place.port, timeout=seconds)
    for method, path, body, headers in requests_of(schema, name, count, seed):
        safe = "".join(letter if "!" <= letter <= "~" else "%3F" for letter in path)
        try:
            line.putrequest(method, safe, skip_host="Host" in headers, skip_accept_encoding=True)
            if not {"Content-Length", "Transfer-Encoding"} & headers.keys():
                line.putheader("Content-Length", str(len(body)))
            for name, value in headers.items():
                line.putheader(name, value.encode("latin-1"))
            line.endheaders(body)
            found = line.getresponse()
            found.read()
            statuses[found.status] += 1
            if {"Content-Length", "Transfer-Encoding", "Upgrade"} & headers.keys():
                line.close()  # what was sent is not what was announced
        except (OSError, http.client.HTTPException):
            statuses[0] += 1
            line.close()
    line.close()
    return statuses
