from __future__ import annotations

import errno
import random
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import pytest

from xdpx.config.faults import ConfigError
from xdpx.search.journal import FILE_NAME, Journal
from xdpx.search.schedules import Budget
from xdpx.search.search import Search, make_search
from xdpx.search.spaces import Values
from xdpx.search.trials import Order, Result
from xdpx.utils.commit import LeaseHeld
from xdpx.utils.local_files import LocalFiles

SPACE = {"x": {"type": "float", "values": [0.0, 1.0]}, "kind": {"type": "categorical", "values": [[1, 2], [3]]}}


def build(recorded: Mapping[int, Values]) -> Search:
    return make_search(
        SPACE, budget=Budget(81), max_trials=20, schedule="asha", parallel=3, recorded=recorded, tuner="random"
    )  # fmt: skip


def trained(order: Order) -> Result:
    score = random.Random(f"{order.values['x']}/{order.samples}").random()
    return Result(order.number, order.samples, score, [(order.samples - 0, score)])


def journal(folder: Path, **facts: object) -> Journal:
    return Journal(folder, facts={"seed": 1, **facts}, build=build)


def finish(opened: Journal, *, most: int = 1000) -> Search:
    with opened:
        for _ in range(most):
            if opened.search.finished:
                break
            opened.tell(trained(opened.search.ready()[0]))
    return opened.search


def test_a_search_cut_anywhere_ends_with_the_decisions_of_an_undisturbed_one(tmp_path: Path) -> None:
    whole = finish(journal(tmp_path / "whole"))
    content = (tmp_path / "whole" / FILE_NAME).read_bytes()
    rng = random.Random(0)
    for number, end in enumerate([0, 1, len(content) - 1, *(rng.randrange(len(content)) for _ in range(12))]):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / FILE_NAME).write_bytes(content[:end])
        again = finish(journal(folder))
        assert again.decisions == whole.decisions
        assert (folder / FILE_NAME).read_bytes().count(b'"result"') == content.count(b'"result"')


def test_stopping_after_every_result_changes_nothing(tmp_path: Path) -> None:
    whole = finish(journal(tmp_path / "whole"))
    for _ in range(200):
        search = finish(journal(tmp_path / "often"), most=1)
        if search.finished:
            break
    assert search.decisions == whole.decisions
    assert (tmp_path / "often" / FILE_NAME).read_bytes() == (tmp_path / "whole" / FILE_NAME).read_bytes()


def test_a_wrong_byte_before_the_last_line_is_told_with_its_line(tmp_path: Path) -> None:
    finish(journal(tmp_path), most=5)
    lines = (tmp_path / FILE_NAME).read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b"1", b"2", 1)
    (tmp_path / FILE_NAME).write_bytes(b"".join(lines))
    with pytest.raises(OSError, match=r"line 4 is damaged"):
        finish(journal(tmp_path))


def test_a_line_that_stands_there_twice_is_told_as_damage_and_not_as_a_bug(tmp_path: Path) -> None:
    finish(journal(tmp_path))
    lines = (tmp_path / FILE_NAME).read_bytes().splitlines(keepends=True)
    assert b'"result"' in lines[-1]
    (tmp_path / FILE_NAME).write_bytes(b"".join([*lines, lines[-1]]))
    with pytest.raises(OSError, match=r"duplicated.*has a result already"):
        finish(journal(tmp_path))


def test_a_changed_search_is_refused_in_words(tmp_path: Path) -> None:
    finish(journal(tmp_path, max_trials=20), most=5)
    with pytest.raises(ConfigError, match="max_trials: is 30, but the search in .* was started with 20") as caught:
        finish(journal(tmp_path, max_trials=30, seed=2, new="x"))
    assert {fault.key for fault in caught.value.faults} == {"max_trials", "seed", "new"}
    finish(journal(tmp_path, max_trials=20))


def test_a_changed_fact_is_named_by_its_key_in_configs(tmp_path: Path) -> None:
    finish(journal(tmp_path, parallel=2), most=5)
    with pytest.raises(ConfigError, match=r"parallel_runs: is 4, but the search in .* was started with 2"):
        finish(journal(tmp_path, parallel=4))


def test_of_a_changed_space_the_parameter_is_told_that_differs(tmp_path: Path) -> None:
    space = {"dropout": {"values": [0, 0.3]}, "seed": {"values": [1, 2]}}
    finish(journal(tmp_path, space=space), most=5)
    with pytest.raises(ConfigError, match=r"1 fault\n.*space.dropout: is .*0.5.* started with .*0.3"):
        finish(journal(tmp_path, space=space | {"dropout": {"values": [0, 0.5]}}))


def test_data_made_anew_are_told_unless_they_are_gone_or_were_not_noted(tmp_path: Path) -> None:
    finish(journal(tmp_path / "old"), most=5)
    finish(journal(tmp_path / "old", data={"out/train.pt": "1"}), most=5)
    finish(journal(tmp_path, data={"out/train.pt": "1", "out/dev.pt": "2"}), most=5)
    with pytest.raises(ConfigError, match=r"1 fault\n.*data_dir: 'out/dev.pt' was rebuilt after the search in"):
        finish(journal(tmp_path, data={"out/dev.pt": "3"}))


def test_two_processes_never_write_one_journal(tmp_path: Path) -> None:
    with journal(tmp_path), pytest.raises(LeaseHeld):
        journal(tmp_path).__enter__()


def test_proposals_come_from_the_journal_and_not_from_another_version_of_the_tuner(tmp_path: Path) -> None:
    before = finish(journal(tmp_path), most=5)

    def other_version(recorded: Mapping[int, Values]) -> Search:
        return make_search(
            SPACE, budget=Budget(81), max_trials=20, schedule="asha", parallel=3, recorded=recorded, seed=99
        )  # fmt: skip

    after = finish(Journal(tmp_path, facts={"seed": 1}, build=other_version))
    begun = len(before.trials)
    assert [trial.values for trial in after.trials[:begun]] == [trial.values for trial in before.trials]


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with journal(tmp_path) as opened:
        whole = (tmp_path / FILE_NAME).read_bytes()
        result = trained(opened.search.ready()[0])

        def full(self: object, file: IO[str]) -> None:
            if file.name.endswith(FILE_NAME):
                raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(LocalFiles, "sync", full)
            with pytest.raises(OSError, match="No space"):
                opened.tell(result)
        assert (tmp_path / FILE_NAME).read_bytes() == whole
        opened.tell(result)
    finish(journal(tmp_path))
