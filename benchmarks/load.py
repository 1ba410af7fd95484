"""Load on a server from many clients: each sends its next row after an answer, or all send at a given rate.

Written on plain sockets, because on two cores the clients' CPU time would be taken from the server being measured.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Load:
    """The results of the requests of a load.

    Attributes:
        seconds: latency of each answered request (at a given rate: since it was due).
        statuses: status -> number of answers.
        lost: requests that were sent, but not answered.
        wall: total seconds.
    """

    seconds: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    lost: int = 0
    wall: float = 0.0

    @property
    def rows_per_second(self) -> float:
        """Answers with status 200 per second."""
        return self.statuses.get(200, 0) / self.wall

    def quantile(self, share: float) -> float:
        """Return the latency within which a share of the answers arrived, in seconds."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Line:
    """A keep-alive connection, reopened if the server closed it after an answer."""

    def __init__(self, address: str, path: str) -> None:
        parts = urlsplit(address)
        self._place = parts.hostname, parts.port
        self._head = f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, body: bytes) -> tuple[int, bytes]:
        """Send a body, and return the status and the content of the answer.

        Raises:
            ConnectionRefusedError: nothing was sent, because nothing listens on the port.
            OSError: it was sent, but not answered.
        """
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(*self._place)
        self._writer.write(f"{self._head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        try:
            head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
            content = await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, ValueError) as error:
            self.close()
            raise ConnectionResetError("no answer") from error
        if b"connection: close" in head:
            self.close()
        return int(head[9:12]), content

    def close(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


Body = Callable[[str], dict[str, object]]
"""Returns the request body for a text."""


def closed_loop(
    address: str, path: str, texts: Sequence[str], body: Body, *, clients: int, seconds: float, seed: int = 0
) -> Load:
    """Run `clients` clients, each sending its next text after an answer, for `seconds` or until they are refused."""
    drawn = random.Random(seed)
    bodies = [json.dumps(body(text)).encode() for text in drawn.sample(list(texts), len(texts))]

    async def all_of_them() -> Load:
        load, begun, number = Load(), time.perf_counter(), iter(range(1 << 60))

        async def client() -> None:
            line = Line(address, path)
            while time.perf_counter() - begun < seconds:
                sent = time.perf_counter()
                try:
                    status, _ = await line.ask(bodies[next(number) % len(bodies)])
                except ConnectionRefusedError:
                    return
                except OSError:
                    load.lost += 1
                    continue
                load.seconds.append(time.perf_counter() - sent)
                load.statuses[status] = load.statuses.get(status, 0) + 1
            line.close()

        await asyncio.gather(*(client() for _ in range(clients)))
        load.wall = time.perf_counter() - begun
        return load

    return asyncio.run(all_of_them())


def paced(
    address: str, path: str, texts: Sequence[str], body: Body, *, rate: float, seconds: float, seed: int = 0
) -> Load:
    """Send requests at random times, `rate` per second on average, without waiting for answers."""
    drawn = random.Random(seed)
    bodies = [json.dumps(body(text)).encode() for text in drawn.sample(list(texts), len(texts))]

    async def all_of_them() -> Load:
        load, free = Load(), list[Line]()
        tasks, due, begun, number = [], 0.0, time.perf_counter(), 0

        async def one(content: bytes, due: float) -> None:
            line = free.pop() if free else Line(address, path)
            try:
                status, _ = await line.ask(content)
            except OSError:
                load.lost += 1
                return
            free.append(line)
            load.seconds.append(time.perf_counter() - begun - due)
            load.statuses[status] = load.statuses.get(status, 0) + 1

        while (due := due + drawn.expovariate(rate)) < seconds:
            await asyncio.sleep(max(0.0, due - (time.perf_counter() - begun)))
            tasks.append(asyncio.create_task(one(bodies[number % len(bodies)], due)))
            number += 1
        await asyncio.gather(*tasks)
        load.wall = time.perf_counter() - begun
        for line in free:
            line.close()
        return load

    return asyncio.run(all_of_them())
