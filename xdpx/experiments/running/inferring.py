"""Mode `infer`: what a model predicts for each row of an input, as files of arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from xdpx.engines.spmd.partitioning import path_name
from xdpx.engines.spmd.state import SpmdState
from xdpx.engines.spmd.transfer import tree_to_host
from xdpx.experiments.running import job_folder
from xdpx.experiments.running.programs import Program, Result
from xdpx.utils import commit, io


class InferProgram(Program):
    """Predictions of one input, in `output_num_shards` .npz files with a row per example."""

    folder, prefix = job_folder.INFER_OUT, "infer_out"

    def _do(self, state: SpmdState, step: int) -> Result:
        count = self.parts.task.hparams.infer.output_num_shards
        shards: list[list[dict[str, Any]]] = [[] for _ in range(count)]
        total = 0
        for batch in self._batches():
            columns = _columns(tree_to_host(self.parts.decoding_engine.predict(state, batch)))
            keys = self._keys(batch)
            for index in (index for index, key in enumerate(keys) if key is not None):
                shards[total % count].append({name: values[index] for name, values in columns.items()})
                total += 1
        for index, rows in enumerate(shards):
            self._write(step, index, rows)
        return self._finish(step, [], {"num_rows": float(total)}, {"infer/num_rows": float(total)})

    def _write(self, step: int, index: int, rows: list[dict[str, Any]]) -> None:
        names = rows[0] if rows else {}
        count, process = self.parts.task.hparams.infer.output_num_shards, self.parts.ranks.rank
        name = f"{self.prefix}_{step}_process_{process}-{index:05d}-of-{count:05d}.npz"
        with commit.replacing(io.join(self.parts.folder, self.folder, self.data.name, name), "wb", own=True) as file:
            columns: Any = {key: np.stack([row[key] for row in rows]) for key in names}
            np.savez(file, **columns)


def _columns(predictions: object) -> Mapping[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(predictions)
    found = {path_name(path) or "output": leaf for path, leaf in leaves}
    return {name: leaf for name, leaf in found.items() if np.ndim(leaf)}
