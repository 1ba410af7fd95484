"""An update that is not finite is taken again, told and kept, once, by whichever way it is noticed."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.processes import fork_ranks
from xdpx.checkpoints.trusted import load_tensors
from xdpx.datasets.plan import Position
from xdpx.engines.origin import NonFiniteOrigin, NonFiniteUpdate, TensorFacts
from xdpx.training.hunting import KEPT_UPDATES, Hunter, Look, _first
from xdpx.training.loop import Session
from xdpx.training.progress import Progress


class Engine:
    """Finds what it was told to find."""

    def __init__(self, origin: NonFiniteOrigin | None) -> None:
        self.found, self.asked = origin, list[int]()
        self.hear_nonfinite: Any = None
        self.checks_each = False

    def origin(self, state: object, group: object, number: int) -> NonFiniteOrigin | None:
        self.asked.append(number)
        return self.found

    def snapshot(self, state: object, *, wanted: bool | None = None) -> dict[str, Any]:
        return {"num_updates": 3}


MADE = [TensorFacts("output", "float32", (2, 4), nan=8, smallest=float("nan"), largest=float("nan"), rows=(0, 1))]
ORIGIN = NonFiniteOrigin("forward", "layer.3", "Block", made=MADE, rows=(0, 1))


def begun(
    folder: Path, updates: int, origin: NonFiniteOrigin | None = ORIGIN, *, checks_each: bool = False
) -> tuple[Hunter, Session, Engine]:
    engine = Engine(origin)
    engine.checks_each = checks_each
    session = Session(engine, None, Progress(), updates, updates)
    hunter = Hunter(str(folder))
    hunter.on_start(session)

    def groups() -> Generator[tuple[Position, list[dict[str, Any]]]]:
        for number in range(1, updates + 1):
            yield Position(), [{"id": np.array([number, number + 100]), "net_input": {"ids": np.ones((2, 3))}}]

    for number, _ in enumerate(hunter.groups(groups(), session), 1):
        session.progress.num_updates = number
    return hunter, session, engine


def test_the_error_that_ends_a_training_says_where_it_began(tmp_path: Path) -> None:
    hunter, session, engine = begun(tmp_path, 5)
    told = r"step 4 is bad. It began forward: 'layer.3' \(Block\) is the first"
    with pytest.raises(NonFiniteUpdate, match=told), hunter.ending(session):
        raise NonFiniteUpdate("step 4 is bad.", 4)
    assert engine.asked == [4]
    text = (tmp_path / "nonfinite" / "update-4.txt").read_text()
    assert "sample ids 4, 104" in text
    saved = load_tensors(str(tmp_path / "nonfinite" / "update-4.pt"))
    assert saved["number"] == 4
    assert saved["group"][0]["id"].tolist() == [4, 104]
    assert saved["state"] == {"num_updates": 3}


def test_an_engine_that_looks_is_answered_once(tmp_path: Path) -> None:
    _, _, engine = begun(tmp_path, 5)
    for number in (3, 5):
        engine.hear_nonfinite(number)
    assert engine.asked == [3]


def test_of_an_engine_that_checks_each_update_only_the_newest_batch_is_kept(tmp_path: Path) -> None:
    hunter, session, engine = begun(tmp_path, 5, checks_each=True)
    engine.hear_nonfinite(5)
    assert engine.asked == [5]
    assert load_tensors(str(tmp_path / "nonfinite" / "update-5.pt"))["group"][0]["id"].tolist() == [5, 105]
    assert "its batch is no longer kept" in hunter.hunt(session, 4)


def test_a_batch_that_is_not_kept_and_a_search_that_fails_never_hide_the_reason(tmp_path: Path) -> None:
    hunter, session, engine = begun(tmp_path, KEPT_UPDATES + 5)
    assert "its batch is no longer kept" in hunter.hunt(session, 5)
    assert engine.asked == []
    broken = SimpleNamespace(origin=lambda *parts: 1 / 0)
    session.engine = broken
    assert "was not replayed: ZeroDivisionError" in hunter.hunt(session, KEPT_UPDATES + 1)


def test_what_is_finite_the_second_time_is_said_to_be(tmp_path: Path) -> None:
    hunter, session, _ = begun(tmp_path, 2, origin=None)
    hunter.hunt(session, 2)
    assert "all of it is finite now" in (tmp_path / "nonfinite" / "update-2.txt").read_text()


def test_of_two_processes_the_one_that_met_it_writes_and_both_end_with_the_same_words(tmp_path: Path) -> None:
    """Real gloo, a real network in DDP: rows of rank 1 alone hold infinity."""

    def work(rank: int) -> None:
        import torch
        import torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel

        from xdpx.checkpoints.folders import Ranks
        from xdpx.engines.pytorch.tracing_back import origin_of
        from xdpx.utils.distributed_utils import barrier, broadcast_object, gather_objects

        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        dist.init_process_group("gloo")
        model = DistributedDataParallel(torch.nn.Linear(3, 1))
        batch = {"id": np.array([rank]), "x": torch.full((1, 3), float("inf") if rank else 1.0)}

        def take_again(batch: Any, last: bool) -> Generator[torch.Tensor]:
            with model.no_sync():
                loss = model(batch["x"]).sum()
                loss.backward()
                yield loss.detach()

        engine = SimpleNamespace(
            origin=lambda state, group, number: origin_of(model.module, group, take_again),
            snapshot=lambda state, wanted: {"rank": rank} if wanted else {},
            checks_each=False,
        )
        session = Session(engine, None, Progress(), 1, 1)  # type: ignore[arg-type]
        hunter = Hunter(str(tmp_path), Ranks(rank, 2, rank, barrier, broadcast_object, gather_objects))
        hunter.on_start(session)
        list(hunter.groups((each for each in [(Position(), [batch])]), session))
        try:
            with hunter.ending(session):
                raise NonFiniteUpdate("update 1 is bad.", 1)
        except NonFiniteUpdate as error:
            (tmp_path / f"said-{rank}.txt").write_text(str(error))
        dist.destroy_process_group()

    codes = fork_ranks(work, 2, str(tmp_path / "words"))
    assert codes == [0, 0], (tmp_path / "words-0.txt").read_text()
    first, second = ((tmp_path / f"said-{rank}.txt").read_text() for rank in range(2))
    assert first == second
    assert "It began on rank 1, the batch itself has inf" in first
    assert sorted(path.name for path in (tmp_path / "nonfinite").iterdir()) == [
        "update-1-rank-1.pt", "update-1-rank-1.txt",
    ]  # fmt: skip
    assert (
        "on rank 1 of 2 processes; the others give finite numbers"
        in (tmp_path / "nonfinite/update-1-rank-1.txt").read_text()
    )
    assert load_tensors(str(tmp_path / "nonfinite/update-1-rank-1.pt"))["state"] == {"rank": 1}


def test_a_sum_that_is_not_finite_on_all_processes_is_not_where_it_began() -> None:
    late = NonFiniteOrigin("loss", "Block", made=MADE, micro_batch=2)
    added = Look(NonFiniteOrigin("sum", "weight", made=MADE), ["first"])
    rank, lines, _ = _first([added, Look(late, ["second"]), added], 3)
    assert (rank, lines) == (1, ["second", "on rank 1 of 3 processes; the others give finite numbers"])
