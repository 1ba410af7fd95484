"""`x-board FOLDER`: look at all runs below a folder in a browser, of every door, while they train.

Usage: x-board FOLDER [--port 6480] [--open] [--host HOST --token TOKEN]

Nothing is changed, and nobody else is let in: it answers this machine alone, until --host names another address. Then a
token is needed, which is given to those who may look; `--token new` makes one. $XDPX_BOARD_TOKEN keeps it out of the
list of processes. From a machine that you reach by ssh: ssh -L 6480:127.0.0.1:6480 HOST, and open the address here.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import signal
import webbrowser
from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdpx.config.faults import ConfigError, Fault
from xdpx.utils import io

if TYPE_CHECKING:
    from aiohttp import web

FLAGS = ("--port", "--open", "--host", "--token", "--help")
PORT = 6480
TRIED_PORTS = 20
"""Where a port is taken and none was asked for, so many after it are tried."""
THIS_MACHINE = "127.0.0.1"
TOKEN_VARIABLE = "XDPX_BOARD_TOKEN"
NEW = "new"


def main(argv: Sequence[str]) -> int:
    """Answer until Ctrl-C. Gives the exit code."""
    if not argv or {"-h", "--help"} & set(argv):
        print((__doc__ or "").strip())
        return 0 if argv else 2
    try:
        asked = _parser().parse_args(argv)
    except SystemExit as stopped:
        return int(stopped.code or 0)
    token = os.environ.get(TOKEN_VARIABLE, "") if asked.token is None else asked.token
    token = secrets.token_urlsafe(24) if token == NEW else token
    faults = list(_faults(asked.folder, asked.host, token))
    if faults:
        raise ConfigError("x-board", faults)
    asyncio.run(_serve(asked.folder, asked.host, asked.port, token, opened=asked.open))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="x-board", allow_abbrev=False)
    parser.add_argument("folder", help="the folder that holds the runs, at any depth")
    parser.add_argument("--port", type=int, default=None, help=f"by default {PORT}, or the next that is free")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument("--host", default=THIS_MACHINE, help="the address to answer at, for others than this machine")
    parser.add_argument("--token", help=f"what those who look must have; `{NEW}` makes one")
    return parser


def _faults(folder: str, host: str, token: str) -> list[Fault]:
    from xdpx.board.guards import SHORTEST_TOKEN, is_this_machine

    faults = []
    if not io.isdir(folder):
        faults.append(Fault("FOLDER", f"'{folder}' is no folder.", "Name the one that holds your runs."))
    if not is_this_machine(host) and not token:
        problem = f"is '{host}', so others could look into your runs."
        faults.append(Fault("--host", problem, "Add --token new, or leave --host out and use ssh -L."))
    if token and len(token) < SHORTEST_TOKEN:
        problem = f"has {len(token)} letters, which can be guessed."
        faults.append(Fault("--token", problem, f"Use {SHORTEST_TOKEN} or more, or `--token new`."))
    return faults


async def _serve(folder: str, host: str, port: int | None, token: str, *, opened: bool) -> None:
    from aiohttp import web

    from xdpx.board.index import Index
    from xdpx.board.server import Board

    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    runner = web.AppRunner(Board(Index(folder)).application(token), access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        port = await _listening(runner, host, port)
        name = f"[{host}]" if ":" in host else host
        address = f"http://{name}:{port}/{f'?token={token}' if token else ''}"
        print(f"{folder}: {address}    (Ctrl-C ends it)", flush=True)
        if opened:
            webbrowser.open(address)
        await ended.wait()
    finally:
        await runner.cleanup()


async def _listening(runner: web.AppRunner, host: str, port: int | None) -> int:
    """Listen, and return at which port.

    Raises:
        ConfigError: the port or the address is not to be had.
    """
    from aiohttp import web

    refused: Exception | None = None
    for number in [port] if port is not None else range(PORT, PORT + TRIED_PORTS):
        try:
            await web.TCPSite(runner, host, number).start()
            return int(runner.addresses[-1][1])
        except (OSError, OverflowError) as error:
            refused = error
    problem = f"{host}:{PORT if port is None else port} is not to be had ({refused})."
    raise ConfigError("x-board", [Fault("--port", problem, "Choose another.")]) from refused
