"""Address and access token of our web servers: the flags that x-board and x-serve share."""

from __future__ import annotations

import argparse
import os
import secrets
from collections.abc import Iterator, Sequence

from xdpx.config.faults import Fault
from xdpx.utils.web_guards import SHORTEST_TOKEN, is_this_machine

THIS_MACHINE = "127.0.0.1"
NEW = "new"


def add_flags(parser: argparse.ArgumentParser, port: int) -> None:
    """Add --port, --open, --host and --token."""
    parser.add_argument("--port", type=int, default=None, help=f"by default {port}, or the next that is free")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument("--host", default=THIS_MACHINE, help="the address to listen on, for access from other machines")
    parser.add_argument("--token", help=f"the token that requests must carry; `{NEW}` makes one")


def asked_of(argv: Sequence[str], parser: argparse.ArgumentParser, doc: str | None) -> argparse.Namespace | int:
    """Parse the words; return the exit code instead if they ask for help or are invalid.

    Args:
        argv: the words after the command.
        parser: parses them.
        doc: the text printed for --help, and without any words.
    """
    if not argv or {"-h", "--help"} & set(argv):
        print((doc or "").strip())
        return 0 if argv else 2
    try:
        return parser.parse_args(argv)
    except SystemExit as stopped:
        return int(stopped.code or 0)


def token_of(given: str | None, variable: str) -> str:
    """Return the given token, or that of an environment variable; a random new one if it is 'new'."""
    token = os.environ.get(variable, "") if given is None else given
    return secrets.token_urlsafe(24) if token == NEW else token


def faults_of(host: str, token: str, *, others: str) -> Iterator[Fault]:
    """Yield faults of an unsafe address or token.

    Args:
        host: the address to listen at.
        token: '' for none.
        others: what others could do without a token, for the message.
    """
    if not is_this_machine(host) and not token:
        problem = f"is '{host}', so others could {others}."
        yield Fault("--host", problem, "Add --token new, or leave --host out and use ssh -L.")
    if token and len(token) < SHORTEST_TOKEN:
        problem = f"has {len(token)} characters, which can be guessed."
        yield Fault("--token", problem, f"Use {SHORTEST_TOKEN} or more, or `--token new`.")


def address_of(host: str, port: int, token: str) -> str:
    """Return the address of the page."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/{f'?token={token}' if token else ''}"
