"""Count compilations: each costs seconds to minutes, and a run should need one per function and shape of batch."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax

from xdpx.logger import log

MANY_SHAPES = 8
"""Number of shapes of one function at which a warning is logged: padding and bucketing should give fewer."""


class Retraces:
    """Counts how often each function is traced for each shape. Call `note` inside the traced function.

    Attributes:
        counts: by `function shape`; more than 1 means a recompilation.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def note(self, function: str, batch: Any) -> None:
        """Count one trace; log a warning for a repeated shape, or for many shapes.

        Args:
            function: its name.
            batch: the arguments whose shapes may differ from call to call.
        """
        key = f"{function} {shape_text(batch)}"
        self.counts[key] += 1
        if self.counts[key] > 1:
            log.warning(
                f"compiled for the {_times(self.counts[key])} time: {key}. Its shapes were seen before, so something "
                "else has changed: where arrays live, their types, or a setting of JAX."
            )
        elif sum(known.startswith(f"{function} ") for known in self.counts) == MANY_SHAPES:
            log.warning(
                f"{function}: compiled for {MANY_SHAPES} shapes of batches so far, the last one {key}. Each "
                "compilation costs time: pad batches to one shape, or to few."
            )


def shape_text(batch: Any) -> str:
    """Return the shapes of a tree in one line: equal shapes once, with how often they occur."""
    found = Counter(f"{leaf.dtype}{list(leaf.shape)}" for leaf in jax.tree.leaves(batch))
    return " ".join(text if count == 1 else f"{count}x{text}" for text, count in found.items()).replace(", ", ",")


def _times(count: int) -> str:
    return {2: "second", 3: "third"}.get(count, f"{count}th")
