"""`x-board FOLDER`: show all runs below a folder in a browser while they train, however they were started.

Usage: x-board FOLDER [--port 6480] [--open] [--host HOST --token TOKEN]

Nothing is changed. Only this machine can connect, unless --host names another address. Then a token is required, which
every viewer must have; `--token new` makes one. $XDPX_BOARD_TOKEN keeps it out of the list of processes. To view it
from your own machine by ssh: ssh -L 6480:127.0.0.1:6480 HOST, and open the address here.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import webbrowser
from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdpx.commands.listening import add_flags, address_of, asked_of, faults_of, token_of
from xdpx.commands.outcomes import announce
from xdpx.config.faults import ConfigError, Fault
from xdpx.utils import collecting, io

if TYPE_CHECKING:
    from aiohttp import web

FLAGS = ("--port", "--open", "--host", "--token", "--help")
PORT = 6480
TRIED_PORTS = 20
"""If the default port is taken, this many ports from it on are tried."""
TOKEN_VARIABLE = "XDPX_BOARD_TOKEN"


def main(argv: Sequence[str]) -> int:
    """Serve the page until Ctrl-C. Return the exit code."""
    asked = asked_of(argv, _parser(), __doc__)
    if isinstance(asked, int):
        return asked
    token = token_of(asked.token, TOKEN_VARIABLE)
    faults = list(faults_of(asked.host, token, others="watch your runs"))
    if not io.isdir(asked.folder):
        faults.insert(0, Fault("FOLDER", f"'{asked.folder}' is not a folder.", "Name the one with your runs."))
    if faults:
        raise ConfigError("x-board", faults)
    asyncio.run(_serve(asked.folder, asked.host, asked.port, token, opened=asked.open))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="x-board", allow_abbrev=False)
    parser.add_argument("folder", help="the folder with the runs, at any depth")
    add_flags(parser, PORT)
    return parser


async def _serve(folder: str, host: str, port: int | None, token: str, *, opened: bool) -> None:
    from aiohttp import web

    from xdpx.board.index import Index
    from xdpx.board.server import Board

    sys.setswitchinterval(0.001)  # seconds; requests wait at most this long for threads that read folders
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    runner = web.AppRunner(Board(Index(folder)).application(token), access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        port = await _listening(runner, host, port)
        address = address_of(host, port, token)
        announce(f"{folder}: {address}    (Ctrl-C stops it)")
        if opened:
            webbrowser.open(address)
        collecting.as_usual()  # no update ever comes
        await ended.wait()
    finally:
        await runner.cleanup()


async def _listening(runner: web.AppRunner, host: str, port: int | None) -> int:
    """Listen, and return the port.

    Raises:
        ConfigError: the port or the address cannot be used.
    """
    from aiohttp import web

    refused: Exception | None = None
    for number in [port] if port is not None else range(PORT, PORT + TRIED_PORTS):
        try:
            await web.TCPSite(runner, host, number).start()
            return int(runner.addresses[-1][1])
        except (OSError, OverflowError) as error:
            refused = error
    problem = f"{host}:{PORT if port is None else port} cannot be used ({refused})."
    raise ConfigError("x-board", [Fault("--port", problem, "Choose another.")]) from refused
