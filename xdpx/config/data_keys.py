"""Which keys a meta.hjson may set: only those that describe how the data were prepared.

Preprocessed data may come from other people, and a run inherits from their `meta.hjson`. But only the user's config
decides where results go, what is overwritten, and which code runs.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from xdpx.config import catalogue

if TYPE_CHECKING:
    from xdpx.config.declarations import Declaration
    from xdpx.config.selection import Selected

DATA_KEYS = frozenset({
    "processor", "data_size", "arriving", "dataset_format", "vocab_size", "word_vocab_size", "num_classes",
    "embedding_dim", "label_values", "several_labels", "tags", "max_len",
})  # fmt: skip
"""Keys that x-prepro writes for every kind of data, besides those that the processor declares."""

REMEDY = "Remove it there, or write it into your own config if you mean it: data may only set their own format."


@cache
def processor_keys() -> frozenset[str]:
    """Return all keys that shipped processors declare."""
    return frozenset(key for key, kinds in _kinds_by_key().items() if "processor" in kinds)


@cache
def _kinds_by_key() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for kind, entries in catalogue.shipped().items():
        for name in entries:
            for declaration in catalogue.entry(kind, name).parameters:
                found.setdefault(declaration.key, set()).add(kind)
    return found


def refusal(declared: list[tuple[Selected, Declaration]], value: object) -> str:
    """Return why a meta.hjson may not set a key, '' if it may.

    Args:
        declared: the declarations of the key by classes of the run; one that only users' classes declare is allowed
            unless it is a path.
        value: from the metadata.
    """
    declaration = declared[0][1]
    key, leads = declaration.key, any(item.path for _, item in declared)
    describes = key in DATA_KEYS or key in processor_keys() or any(one.kind == "processor" for one, _ in declared)
    if not describes and (key in _kinds_by_key() or leads):
        return "comes with the data, but does not describe them."
    if leads and isinstance(value, str) and "://" in value:
        return f"comes with the data and points elsewhere ({value})."
    return ""
