"""Access to the Hugging Face hub: local copies come first, and an unreachable hub is reported within a second."""

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
"""Time limit for a connection to the hub; huggingface_hub itself would retry for most of a minute."""
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt")
MIRROR = "https://hf-mirror.com"
"""A public mirror of the hub, for networks that do not reach it."""


def load(source: str, read: Callable[[str, bool], T]) -> T:
    """Return what `read` loads from a local folder or from a model on the hub.

    Args:
        source: a local folder, or a name such as `bert-base-chinese` or `owner/model`.
        read: takes the source, and whether to use local files only.

    Raises:
        FileNotFoundError: it is neither, or the hub cannot be reached; the message is a clause, not a sentence.
        OSError: it cannot be read; raised by `read`.
    """
    if os.path.isdir(source):
        return read(source, True)
    kept = kept_folder(source)
    if kept is not None:
        return read(kept, True)
    if not _NAME.fullmatch(source):
        raise FileNotFoundError("there is no such folder, and it is not a name that the Hugging Face hub could have")
    if not is_reachable():
        raise FileNotFoundError("there is no such folder, and the Hugging Face hub cannot be reached from here")
    return read(source, False)


def kept_folder(name: str) -> str | None:
    """Return the folder of a model in the local cache of the hub, None if it is not there. Uses no network.

    HF_HUB_CACHE or HF_HOME set the cache. A short name, such as `bert-base-chinese`, also finds the name that the hub
    has moved it to (`google-bert/bert-base-chinese`), if exactly one owner matches.
    """
    if not _NAME.fullmatch(name):
        return None
    from huggingface_hub import constants, try_to_load_from_cache

    cache = constants.HF_HUB_CACHE
    stored = os.listdir(cache) if "/" not in name and os.path.isdir(cache) else []
    moved = [folder for folder in stored if folder.startswith("models--") and folder.endswith(f"--{name}")]
    for candidate in [name, *("/".join(folder.split("--")[1:]) for folder in moved[:1] if len(moved) == 1)]:
        found = (try_to_load_from_cache(candidate, file, cache_dir=cache) for file in _FILES)
        path = next((path for path in found if isinstance(path, str)), None)
        if path is not None:
            return os.path.dirname(path)
    return None


def how_to_fetch(name: str) -> str:
    """Return advice on how to download a model that is not on this machine; '' if it cannot be a name on the hub.

    `first/second` is taken for a path, not for owner and model, if a local folder `first` exists.
    """
    if not _NAME.fullmatch(name) or os.path.isdir(name.partition("/")[0]) or name.endswith((".pt", ".txt")):
        return ""
    return (
        f"If it is a name on the Hugging Face hub, fetch it, and run this again: hf download {name} (where the hub "
        f"cannot be reached: HF_ENDPOINT={MIRROR} hf download {name}; or modelscope download --model {name} "
        "--local_dir DIR, and name that DIR)."
    )


def is_reachable() -> bool:
    """Return whether the hub, or the proxy in front of it, accepts a connection; False if HF_HUB_OFFLINE is set."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    return answers(constants.ENDPOINT)


def answers(address: str, seconds: float = SECONDS_TO_ANSWER) -> bool:
    """Return whether a web address, or the proxy in front of it, accepts a connection within `seconds`."""
    endpoint = urlsplit(address)
    first_stop = urlsplit(getproxies().get(endpoint.scheme) or address)
    host, port = first_stop.hostname or "", first_stop.port or (80 if first_stop.scheme == "http" else 443)
    connected = threading.Event()

    def connect() -> None:
        with suppress(OSError), socket.create_connection((host, port), timeout=seconds):
            connected.set()

    thread = threading.Thread(target=connect, daemon=True)  # a thread, because DNS lookups have no timeout
    thread.start()
    thread.join(seconds)
    return connected.is_set()
