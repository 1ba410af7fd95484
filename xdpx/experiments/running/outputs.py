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

    def metrics_of(self, step: int) -> dict[str, float] | None:
        """Return the metrics of a step that was completed before; None otherwise."""
        path = self.metrics_path(step)
        if not io.isfile(path):
            return None
        text, trouble = text_of(path)
        try:
            found: dict[str, float] = json.loads(text)
        except ValueError:
            set_aside(path, trouble or "is not JSON", then="it is computed again")
            return None
        return found

    def write_rows(self, step: int, rows: Rows) -> None:
        """Write the rows of this process."""
        lines = (json.dumps(plain(row), sort_keys=True, ensure_ascii=False) for _, row in rows)
        commit.write_text(self.path(step, "jsonl"), "".join(f"{line}\n" for line in lines))
        if self._pickled:
            commit.write_bytes(self.path(step, "pickle"), pickle.dumps([(key, dict(row)) for key, row in rows]))

    def write_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the metrics; from then on, the step counts as completed."""
        commit.write_text(self.metrics_path(step), json.dumps(dict(metrics), indent=1, sort_keys=True) + "\n")


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
