"""What a model notes counts over all processes that train together, each batch once."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

from tests.processes import fork_ranks


def test_all_processes_count_and_surplus_batches_do_not(tmp_path: Path) -> None:
    def work(rank: int) -> None:
        import torch.distributed as dist

        from xdpx.logger import log

        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        dist.init_process_group("gloo")
        for micro in range(2):  # two micro-batches of an update
            log.add_summary("mean", 10.0 * rank + micro, n=1 + rank)
        log.add_histogram("spread", np.arange(10.0) + 10 * rank)
        if rank == 1:
            log.add_summary("only there", 7.0)
        rows = [log.take_summaries()]
        with log.scoring():
            for number in range(rank, 5, 2):  # five batches, dealt out in turn
                log.add_accumulative_summary("order", number, lambda steps: dict(zip("abcdef", steps, strict=False)))
            if rank == 1:
                with log.muted():
                    log.add_accumulative_summary("order", 99, lambda steps: {})
        rows.append(log.take_accumulated())
        (tmp_path / f"{rank}.json").write_text(json.dumps(rows))
        dist.destroy_process_group()

    codes = fork_ranks(work, 2, str(tmp_path / "words"))
    assert codes == [0, 0], (tmp_path / "words-0.txt").read_text()
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second
    summaries, accumulated = first
    assert summaries["mean"] == (0 + 1 + 2 * 10 + 2 * 11) / 6
    assert (summaries["only there"], summaries["spread_p50"]) == (7.0, 10.0)
    assert accumulated == {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4}
