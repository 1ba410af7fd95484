"""What may come with data: keys that say how they were prepared. Whatever else a meta.hjson says, it asks for nothing.

Preprocessed data are copied from others. Their `meta.hjson` stands among the parents of a run, but where results go,
what is overwritten and which code runs is decided by the config alone.
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
"""What x-prepro writes for every kind of data. A processor adds what it declares itself."""

REMEDY = "Remove it there, or write it into your own config if you mean it: data decide nothing but their own form."


@cache
def processor_keys() -> frozenset[str]:
    """Return the keys that shipped processors declare."""
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
    """Return why a key may not come with data, '' when it may.

    Args:
        declared: every class of the run that takes it; what only a user's own class declares is that user's affair.
        value: as it stands in the meta data.
    """
    declaration = declared[0][1]
    key, leads = declaration.key, any(item.path for _, item in declared)
    describes = key in DATA_KEYS or key in processor_keys() or any(one.kind == "processor" for one, _ in declared)
    if not describes and (key in _kinds_by_key() or leads):
        return "comes with the data, but says nothing about them."
    if leads and isinstance(value, str) and "://" in value:
        return f"comes with the data and leads elsewhere ({value})."
    return ""
