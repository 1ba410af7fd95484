"""`meta.hjson`: the keys that training inherits from preprocessing, and the list of splits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from xdpx.config.faults import ConfigError, Fault
from xdpx.utils import commit, io
from xdpx.utils.manifests import leads_out
from xdpx.utils.verified import RESOURCES

FILE = "meta.hjson"


def read_meta(data_dir: str) -> dict[str, Any]:
    """Return the content of `meta.hjson`; an empty dict if it does not exist yet.

    Raises:
        ConfigError: the file is damaged, or names splits outside of its folder.
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
        raise _damaged(path, "it contains no table of keys")
    if any(leads_out(split) for split in [*meta.get("data_size", {}), *map(str, meta.get("arriving", ()))]):
        raise _damaged(path, "it names splits outside of its folder")
    return meta


def write_meta(data_dir: str, meta: Mapping[str, Any]) -> None:
    """Write `meta.hjson` atomically. It is JSON, the unambiguous subset of hjson."""
    commit.write_text(io.join(data_dir, FILE), json.dumps(meta, indent=2, ensure_ascii=False) + "\n")


def altered_keys(data_dir: str, meta: Mapping[str, Any]) -> list[Fault]:
    """Return a fault for each key whose value differs from that recorded in the manifest of the resources."""
    manifest = commit.read_manifest(data_dir, RESOURCES)
    noted: Mapping[str, Any] = manifest.facts.get("meta", {}) if manifest is not None else {}
    path, missing = io.join(data_dir, FILE), "nothing"
    remedy = "Copy it again, or run x-prepro again; to change it, set the key in your config instead."
    return [
        Fault(key, f"is {meta.get(key, missing)!r} in {path}, but x-prepro wrote {value!r}.", remedy)
        for key, value in noted.items()
        if meta.get(key) != value
    ]


def _damaged(path: str, reason: str) -> ConfigError:
    fault = Fault(FILE, f"is not what x-prepro wrote ({reason}).", "Remove it and preprocess all splits again.")
    return ConfigError(path, [fault])
