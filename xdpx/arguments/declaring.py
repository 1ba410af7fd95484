"""How a field of the arguments is declared: default, what it decides, and what the command line must know of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any


def option(default: Any, text: str, **details: Any) -> Any:
    """Declare one field.

    Args:
        default: a plain value, or a class such as `list` that makes it anew each time.
        text: what the field decides; shown by `--help`.
        details: what argparse must know beyond the type: `choices`, `nargs`, `const`, `aliases`; and `repr`.
    """
    shown = details.pop("repr", True)
    metadata = {"help": text, **details}
    if isinstance(default, type):
        make: Callable[[], Any] = default
        return field(default_factory=make, metadata=metadata, repr=shown)
    return field(default=default, metadata=metadata, repr=shown)


LEVELS = ("detail", "debug", "info", "warning", "error", "critical", "passive")
"""What `log_level` may be; `passive` leaves the level as the program has set it."""

BARE_FLAG = {"nargs": "?", "const": True}
"""For a field that is not only true or false: given without a value it means true."""
