"""Ask a server as many clients at once do: each its next row as soon as it has an answer, or all at a given pace.

Written on bare sockets, because on two cores a client that thinks takes its time from the server that it measures.
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
    """What became of the requests of a load.

    Attributes:
        seconds: of each that was answered, from its sending (at a pace: from when it was due).
        statuses: how many answers of each status.
        lost: those that were sent, and had no answer.
        wall: seconds of the whole.
    """

    seconds: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    lost: int = 0
    wall: float = 0.0

    @property
    def rows_per_second(self) -> float:
        """Answers with status 200 in a second."""
        return self.statuses.get(200, 0) / self.wall

    def quantile(self, share: float) -> float:
        """Return the seconds within which a share of the answers came."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Line:
    """One connection that is kept, and opened anew where the server closed it after an answer."""

    def __init__(self, address: str, path: str) -> None:
        parts = urlsplit(address)
        self._place = parts.hostname, parts.port
        self._head = f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, body: bytes) -> tuple[int, bytes]:
        """Send a body, and return the status and the content of its answer.

        Raises:
            ConnectionRefusedError: nothing was sent, because nobody listens.
            OSError: it was sent, and there is no answer.
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
"""What is sent for a text."""


def closed_loop(
    address: str, path: str, texts: Sequence[str], body: Body, *, clients: int, seconds: float, seed: int = 0
) -> Load:
    """Let so many clients ask, each for its next text when it has an answer, for so many seconds; or until refused."""
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
    """Ask at random moments, `rate` times a second on average, whether or not earlier ones have been answered."""
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
