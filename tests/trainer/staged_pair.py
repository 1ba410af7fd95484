"""Search on two processes: undisturbed, killed halfway, and resumed: `staged_pair.py FOLDER`."""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tests.preloaded import SAVING, SHARDING, import_before_forking
from tests.processes import fork_ranks
from tests.trainer.test_staging import search, searcher
from xdpx.search.journal import Journal


def train(folder: str, results: int, rank: int) -> None:
    """Search; the first process is killed instead of recording its result number `results`."""
    torch.set_num_threads(1)
    tell, told = Journal.tell, list[Any]()

    def killed(self: Journal, result: Any) -> None:
        told.append(result)
        if len(told) == results:
            os.kill(os.getpid(), signal.SIGKILL)
        tell(self, result)

    Journal.tell = killed  # type: ignore[method-assign]
    best = search(searcher(Path(folder), ddp_timeout=60))
    Path(f"{folder}-{rank}.json").write_text(json.dumps(None if best is None else [best.run_id, best.objective]))


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    import_before_forking(*SHARDING, *SAVING)
    codes = [
        fork_ranks(partial(train, folder, results), 2, f"words-{folder}-{results}")
        for folder, results in (("calm", -1), ("killed", 4), ("killed", -1))
    ]
    Path("codes.json").write_text(json.dumps(codes))
