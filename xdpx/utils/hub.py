"""The Hugging Face hub, asked politely: what is here comes first, and a hub that is out of reach is told at once."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies

T = TypeVar("T")

SECONDS_TO_ANSWER = 1.0
"""The library itself would try again for most of a minute."""
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json")


def load(source: str, read: Callable[[str, bool], T]) -> T:
    """Read a folder, or what the hub has under a name.

    Args:
        source: a local folder, or a name such as `bert-base-chinese` or `owner/model`.
        read: takes the source and whether it must be found on this machine.

    Raises:
        FileNotFoundError: it is neither, or the hub cannot be asked; the message is one clause.
        OSError: what is there cannot be read; as the library says it.
    """
    if os.path.isdir(source) or is_kept(source):
        return read(source, True)
    if not _NAME.fullmatch(source):
        raise FileNotFoundError("there is no such folder, and it is no name that the Hugging Face hub could have")
    if not is_reachable():
        raise FileNotFoundError("there is no such folder, and the Hugging Face hub cannot be reached from here")
    return read(source, False)


def is_kept(source: str) -> bool:
    """Tell whether something of this name was fetched from the hub before."""
    if not _NAME.fullmatch(source):
        return False
    from huggingface_hub import try_to_load_from_cache

    return any(isinstance(try_to_load_from_cache(source, name), str) for name in _FILES)


def is_reachable() -> bool:
    """Tell whether the hub, or the proxy on the way to it, takes a connection; never when HF_HUB_OFFLINE is set."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    return answers(constants.ENDPOINT)


def answers(address: str, seconds: float = SECONDS_TO_ANSWER) -> bool:
    """Tell whether a web address, or the proxy on the way to it, takes a connection within some seconds."""
    endpoint = urlsplit(address)
    first_stop = urlsplit(getproxies().get(endpoint.scheme) or address)
    host, port = first_stop.hostname or "", first_stop.port or (80 if first_stop.scheme == "http" else 443)
    connected = threading.Event()

    def connect() -> None:
        with suppress(OSError), socket.create_connection((host, port), timeout=seconds):
            connected.set()

    thread = threading.Thread(target=connect, daemon=True)  # because looking a name up knows no time limit
    thread.start()
    thread.join(seconds)
    return connected.is_set()
