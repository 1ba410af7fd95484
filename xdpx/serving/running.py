"""Run the server: listen, answer, and shut down without losing a request."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from types import FrameType

import uvicorn

from xdpx.config.faults import ConfigError, Fault
from xdpx.logger import log
from xdpx.serving.application import Ending
from xdpx.serving.guard import Guard

LINGER = 1.0
"""Seconds without a request after which connections that are still open are closed at the end."""
BACKLOG = 2048


def listening(host: str, ports: list[int]) -> socket.socket:
    """Return a socket that listens on the first free one of some ports.

    Raises:
        ConfigError: none of them is available.
    """
    refused: Exception | None = None
    for port in ports:
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            return socket.create_server((host.strip("[]"), port), family=family, backlog=BACKLOG)
        except (OSError, OverflowError) as error:
            refused = error
    problem = f"{host}:{ports[0]} is not available ({refused})."
    raise ConfigError("x-serve", [Fault("--port", problem, "Choose another.")]) from refused


class Server(uvicorn.Server):
    """A server that ends in three steps, at the first SIGTERM or Ctrl-C.

    It stops listening; it answers requests that still arrive on open connections, with `Connection: close`; and when
    none has come for `LINGER` seconds, it closes the idle ones. So a request on its way is never cut off, unless its
    connection was idle for that long.
    """

    def __init__(self, application: Guard, ending: Ending) -> None:
        config = uvicorn.Config(
            application, log_config=None, log_level="error", access_log=False, lifespan="on", ws="none",
            backlog=BACKLOG, server_header=False, timeout_keep_alive=75,
        )  # fmt: skip
        super().__init__(config)
        self._ending = ending

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Shut down gracefully at the first signal, which is not an error; at once at a second Ctrl-C."""
        del frame
        self.force_exit |= self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down in the three steps described in the class."""
        self._ending.begun = True
        for server in self.servers:
            server.close()
        log.info("shutting down: finishing open requests, accepting no more")
        seen, since = -1, time.monotonic()
        while self.server_state.connections and not self.force_exit:
            if self.server_state.tasks or self.server_state.total_requests != seen:
                seen, since = self.server_state.total_requests, time.monotonic()
            elif time.monotonic() - since > LINGER:
                break
            await asyncio.sleep(0.02)
        await super().shutdown(sockets)
