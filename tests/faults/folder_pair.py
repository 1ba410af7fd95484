"""One of two real processes that save together: `python folder_pair.py <folder> <rank> <port> <rank that dies>`."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed

from xdpx.checkpoints.folders import Ranks, recover
from xdpx.engines.pytorch import collectives
from xdpx.engines.pytorch.world import leave
from xdpx.trainer.files import rng
from xdpx.trainer.files.checkpoint_files import Contents, OwnState, save_checkpoint
from xdpx.trainer.files.model_files import ModelFiles


def main(folder: Path, rank: int, port: str, dies: int) -> None:
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


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
