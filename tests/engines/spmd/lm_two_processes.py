"""One of two real processes that train the language model, imported with the words PORT INDEX FOLDER SAVED END."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

PORT, INDEX, FOLDER, SAVED, END = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), *map(int, sys.argv[4:])
os.environ["XLA_FLAGS"] += (
    " --xla_cpu_collective_timeout_seconds=300 --xla_cpu_collective_call_terminate_timeout_seconds=300"
)

import jax  # noqa: E402

from xdpx.checkpoints import spmd_files  # noqa: E402
from xdpx.checkpoints.folders import Ranks  # noqa: E402
from xdpx.engines.spmd import world  # noqa: E402
from xdpx.engines.spmd.partitioning import infeed  # noqa: E402

jax.config.update("jax_num_cpu_devices", 2)
spec = importlib.util.spec_from_file_location("spmd_lm", Path(__file__).with_name("lm.py"))
assert spec
assert spec.loader
lm = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = lm
spec.loader.exec_module(lm)

assert world.start(f"127.0.0.1:{PORT}", 2, INDEX)
talk = world.Talk("save")
ranks = Ranks(INDEX, 2, INDEX, talk.barrier, talk.broadcast, talk.gather)
engine = lm.engine([1, 2, 1], [2, 1, 1])
host, hosts = infeed(engine.rules, engine.mesh)
state, losses = lm.train(engine, engine.start(3), range(SAVED), host=host, hosts=hosts)
spmd_files.save(state, FOLDER, step=SAVED, background=True, ranks=ranks)  # while the next updates are taken
state, more = lm.train(engine, state, range(SAVED, END), host=host, hosts=hosts)
spmd_files.wait()
world.barrier("end")
(FOLDER / f"found.{INDEX}").write_text(json.dumps(losses + more))
world.stop()
