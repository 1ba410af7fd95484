"""`meta.hjson`: what training inherits from preprocessing, and which splits there are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from xdpx.config.faults import ConfigError, Fault
from xdpx.utils import commit, io

FILE = "meta.hjson"


def read_meta(data_dir: str) -> dict[str, Any]:
    """Give what `write_meta` wrote; an empty dict when there is nothing yet.

    Raises:
        ConfigError: the file is damaged.
    """
    path = io.join(data_dir, FILE)
    try:
        with io.open(path) as file:
            meta = json.loads(file.read())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise _damaged(path, str(error)) from error
    if not isinstance(meta, dict) or not isinstance(meta.get("data_size", {}), dict):
        raise _damaged(path, "it holds no table of keys")
    return meta


def write_meta(data_dir: str, meta: Mapping[str, Any]) -> None:
    """Write `meta.hjson`, whole or not at all. It is JSON, which is hjson without surprises."""
    commit.write_text(io.join(data_dir, FILE), json.dumps(meta, indent=2, ensure_ascii=False) + "\n")


def _damaged(path: str, reason: str) -> ConfigError:
    fault = Fault(FILE, f"is not what x-prepro wrote ({reason}).", "Remove it and preprocess all splits again.")
    return ConfigError(path, [fault])
