"""A reader that looks at any moment never takes an unfinished set for a whole one."""

from __future__ import annotations

import multiprocessing
from multiprocessing.synchronize import Event
from typing import Any

import pytest

from xdpx.utils import io
from xdpx.utils.commit import Commit, manifests, problems

fork = multiprocessing.get_context("fork")


def look(folder: str, stop: Event, answers: Any) -> None:
    seen, bad = set(), []
    while not stop.is_set():
        for name in manifests(folder):
            seen.add(name)
            bad += problems(folder, name, hashes=True)
    answers.put((len(seen), bad))


@pytest.mark.parametrize(("kind", "sets", "readers"), [("local", 100, 3), ("s3", 5, 2)])
def test_readers_see_only_whole_sets(
    kind: str, sets: int, readers: int, tmp_path: Any, request: pytest.FixtureRequest
) -> None:
    folder = str(tmp_path) if kind == "local" else f"{request.getfixturevalue('s3_root')}/run"
    stop, answers = fork.Event(), fork.Queue()
    watchers = [fork.Process(target=look, args=(folder, stop, answers)) for _ in range(readers)]
    for watcher in watchers:
        watcher.start()
    for number in range(sets):
        with Commit(folder, f"step-{number}") as new:
            for name in (f"{number}.pt", f"{number}.pts"):
                with new.open(name) as file:
                    file.write(b"some content" * number)
    stop.set()
    results = [answers.get(timeout=300) for _ in watchers]
    for watcher in watchers:
        watcher.join()
    assert all(bad == [] for _, bad in results)
    assert max(count for count, _ in results) > 1
    assert len(io.listdir(folder)) == 3 * sets
