"""One of two real processes, imported with the words PORT INDEX FOLDER. Results are written to files."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

PORT, INDEX, FOLDER = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
os.environ["XLA_FLAGS"] += (
    " --xla_cpu_collective_timeout_seconds=300 --xla_cpu_collective_call_terminate_timeout_seconds=300"
)

import jax  # noqa: E402
import numpy as np  # noqa: E402

from xdpx.checkpoints import spmd_files, spmd_folders  # noqa: E402
from xdpx.checkpoints.folders import Ranks  # noqa: E402
from xdpx.engines.spmd import world  # noqa: E402
from xdpx.engines.spmd.engine import SpmdEngine, SpmdOptions  # noqa: E402
from xdpx.engines.spmd.mesh import make_mesh  # noqa: E402
from xdpx.engines.spmd.partitioning import infeed  # noqa: E402

jax.config.update("jax_num_cpu_devices", 2)
spec = importlib.util.spec_from_file_location("spmd_toy", Path(__file__).with_name("toy.py"))
assert spec
assert spec.loader
toy = importlib.util.module_from_spec(spec)
sys.modules["spmd_toy"] = toy
spec.loader.exec_module(toy)

found: dict[str, Any] = {}


def rows_of(batch: dict[str, Any], host: int, count: int) -> dict[str, Any]:
    size = toy.ROWS // count
    return {name: rows[host * size : (host + 1) * size] for name, rows in batch.items()}


def train(engine: SpmdEngine, state: Any, steps: range) -> tuple[Any, list[float]]:
    host, count = infeed(engine.rules, engine.mesh)
    facts = []
    for step in steps:
        state, told = engine.update(state, [rows_of(toy.batch_of(step), host, count)])
        facts.append(told)
    numbers = [engine.facts_to_host(told) for told in facts]
    return state, [each["loss_sum"] / each["count"] for each in numbers]


def engine_on(ici: list[int], dcn: list[int] | None) -> SpmdEngine:
    return SpmdEngine(toy.Task(), mesh=make_mesh(ici, dcn), rules=toy.RULES, options=SpmdOptions(), spec=toy.SPEC)


assert world.start(f"127.0.0.1:{PORT}", 2, INDEX)
talk = world.Talk("save")
ranks = Ranks(INDEX, 2, INDEX, talk.barrier, talk.broadcast, talk.gather)

# Two slices of two devices: each process is one.
engine = engine_on([1, 2, 1], [2, 1, 1])
found["slices"] = [sorted({device.process_index for device in part.flat}) for part in engine.mesh.devices]
found["infeed"] = infeed(engine.rules, engine.mesh)
state, found["losses"] = train(engine, engine.start(7), range(10))
checkpoints = FOLDER / "checkpoints"
path = spmd_files.save(
    state, checkpoints, step=10, train_input={"host": INDEX}, background=True, ranks=ranks
)  # while the next updates are taken
state, found["more"] = train(engine, state, range(10, 15))
spmd_files.wait()
found["path"] = spmd_folders.newest(checkpoints, ranks=ranks)
found["input"] = spmd_folders.read_train_input(path, INDEX, 2)

# Matrices sharded across processes that hold the same rows; resumed from a checkpoint of one process.
other = engine_on([1, 1, 4], None)
found["infeed of tensor"] = infeed(other.rules, other.mesh)
state = spmd_files.restore(FOLDER / "alone" / "checkpoint_00000010", other.target, ranks=ranks)
state, found["continued"] = train(other, state, range(10, 15))

host, count = infeed(engine.rules, engine.mesh)
state = spmd_files.restore(path, engine.target, ranks=ranks)
scored = engine.predictions_to_host(engine.score(state, rows_of(toy.batch_of(99), host, count)))
found["rows"] = scored["best"].tolist()
found["loss"] = scored["sum of loss"] / scored["weight of loss"]
snapshot = engine.snapshot(state)
found["snapshot"] = float(sum(np.abs(np.asarray(value.float())).sum() for value in snapshot["tensors"].values()))
talk.report("old")
talk.report(INDEX)
talk.barrier()
found["reported"] = talk.report(INDEX)
found["agreed"] = [world.agree_any(INDEX == 1), world.agree_any(False), talk.broadcast(f"from {INDEX}")]
try:
    engine.put(rows_of(toy.batch_of(0), 0, 8))
except ValueError as error:
    found["refused"] = str(error)
world.barrier("end")
(FOLDER / f"found.{INDEX}").write_text(json.dumps(found))
world.stop()
