"""Files with the results of an evaluation or decoding at a step: rows as JSON lines and pickles, and metrics."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xdpx.utils import commit, io
from xdpx.utils.aside import set_aside, text_of

Rows = Sequence[tuple[str | None, Mapping[str, Any]]]
"""(key of the example, its results)"""

COMPUTED_FROM = "computed_from"
"""Key beside the metrics: digests of the weights and of the settings that they were computed from."""
EARLIER = "earlier-"
"""Folders of outputs of the same steps of another job, of another stretch of this one, or with other settings."""


class OutputFiles:
    """The files of one input in `eval_out` or `decoder_out`.

    Args:
        folder: of the input.
        prefix: of the files: `eval_out` or `decoder_out`.
        process: index of this process; each process writes its own rows.
        pickled: also write a pickle next to the JSON lines.
    """

    def __init__(self, folder: str, prefix: str, *, process: int, pickled: bool) -> None:
        self._folder, self._prefix, self._process, self._pickled = folder, prefix, process, pickled

    def path(self, step: int, ending: str) -> str:
        """Return the path of a file of this process."""
        return io.join(self._folder, f"{self._prefix}_{step}_shard_{self._process}.{ending}")

    def metrics_path(self, step: int) -> str:
        """Return the path of the metrics over all processes, which are written last."""
        return io.join(self._folder, f"{self._prefix}_{step}_metrics.json")

    def metrics_of(self, step: int) -> tuple[dict[str, float], dict[str, str]] | None:
        """Return (metrics, what they were computed from) of a step that was completed before; None otherwise.

        The latter is {} if an earlier version wrote them.
        """
        path = self.metrics_path(step)
        if not io.isfile(path):
            return None
        text, trouble = text_of(path)
        try:
            found = dict(json.loads(text))
        except (ValueError, TypeError):
            set_aside(path, trouble or "is not a JSON object", then="it is computed again")
            return None
        return found, found.pop(COMPUTED_FROM, {})

    def keep_earlier(self, step: int) -> str:
        """Move the files of a step, of all processes, into another folder; return its path. Called on one process."""
        number, metrics = 1, io.name(self.metrics_path(step))
        while io.exists(io.join(kept := io.join(self._folder, f"{EARLIER}{number}"), metrics)):
            number += 1
        for name in sorted(io.listdir(self._folder), key=lambda name: name == metrics):  # last, if it is interrupted
            if name.startswith(f"{self._prefix}_{step}_"):
                io.move(io.join(self._folder, name), io.join(kept, name))
        return kept

    def write_rows(self, step: int, rows: Rows) -> None:
        """Write the rows of this process."""
        lines = (json.dumps(plain(row), sort_keys=True, ensure_ascii=False) for _, row in rows)
        commit.write_text(self.path(step, "jsonl"), "".join(f"{line}\n" for line in lines))
        if self._pickled:
            commit.write_bytes(self.path(step, "pickle"), pickle.dumps([(key, dict(row)) for key, row in rows]))

    def write_metrics(self, step: int, metrics: Mapping[str, float], source: Mapping[str, str]) -> None:
        """Write the metrics and what they were computed from; from then on, the step counts as completed."""
        text = json.dumps({**metrics, COMPUTED_FROM: dict(source)}, indent=1, sort_keys=True)
        commit.write_text(self.metrics_path(step), f"{text}\n")


def plain(value: object) -> Any:
    """Convert arrays, also inside mappings and sequences, to values that JSON can hold."""
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def rows_of(columns: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """Split arrays with one row per example into rows; arrays of other lengths are left out."""
    fitting = {name: value for name, value in columns.items() if np.ndim(value) and np.shape(value)[0] == count}
    return [{name: value[index] for name, value in fitting.items()} for index in range(count)]
