from __future__ import annotations

import multiprocessing
from typing import Any

from xdpx.utils.owners import fate_of, is_owner_id, new_owner_id, pid_of, started_at

fork: Any = multiprocessing.get_context("fork")


def say_and_wait(connection: Any) -> None:
    connection.send(new_owner_id())
    connection.recv()


def test_a_forked_process_has_ids_of_its_own_and_lives_as_long_as_they_say() -> None:
    ours = new_owner_id()
    connection, its_end = fork.Pipe()
    child = fork.Process(target=say_and_wait, args=(its_end,))
    child.start()
    its = connection.recv()
    assert pid_of(its) == child.pid != pid_of(ours)
    assert int(its.split("-")[2]) == started_at(child.pid)
    assert (fate_of(ours), fate_of(its)) == ("alive", "alive")
    connection.send("end")
    child.join()
    assert (fate_of(ours), fate_of(its)) == ("alive", "gone")


def test_each_id_is_another_one() -> None:
    ids = {new_owner_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(map(is_owner_id, ids))
