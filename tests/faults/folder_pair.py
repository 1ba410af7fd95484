"""Two processes that save together, of which one dies, and then two more: `folder_pair.py FOLDER RANK ...`.

They save in FOLDER/RANK for each RANK that dies. FOLDER/told.json has its exit codes and the newest checkpoint after
the first pair, and the exit codes of the second.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
from torch import distributed

from tests.preloaded import SAVING, SHARDING, import_before_forking
from tests.processes import fork, free_port
from xdpx.checkpoints.folders import Ranks, newest, recover
from xdpx.engines.pytorch import collectives
from xdpx.engines.pytorch.world import leave
from xdpx.trainer.files import rng
from xdpx.trainer.files.checkpoint_files import Contents, OwnState, save_checkpoint
from xdpx.trainer.files.model_files import ModelFiles

NOBODY = -1


def work(folder: Path, rank: int, port: int, dies: int) -> None:
    store = f"tcp://127.0.0.1:{port}"
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2, timeout=timedelta(minutes=5))
    ranks = Ranks(
        rank, 2, rank, collectives.barrier, collectives.broadcast_object, collectives.gather_objects
    )  # fmt: skip
    recover(folder)
    torch.manual_seed(rank)
    model = torch.nn.Linear(3, 3)

    def write(path: str) -> None:
        if rank == 0:
            ModelFiles(model).write(path)
        if step == 20 and rank == dies:
            os._exit(9)

    for step in (10, 20):
        contents = Contents({"global_step": step}, None, torch.optim.Adam(model.parameters()).state_dict(), {})
        own = OwnState({**rng.capture(), "rank": rank}, None)
        save_checkpoint(folder, step, contents, write, own=own, ranks=ranks)
    leave()


def run_pair(folder: Path, dies: int) -> list[int]:
    """Return the exit codes of both. Each is left to end by itself."""
    port = free_port()
    running = [fork(partial(work, folder, rank, port, dies), f"{folder}-said-{rank}.txt") for rank in range(2)]
    return [os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) for each in running]


def main(folder: Path, *dying: int) -> None:
    import_before_forking(*SHARDING, *SAVING)
    told = {}
    for rank in dying:
        own = folder / str(rank)
        told[rank] = [run_pair(own, rank), newest(own), run_pair(own, NOBODY)]
    (folder / "told.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
