from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from transformers.utils import logging as theirs

from xdpx.arguments.levels import apply_log_level
from xdpx.logger import log


@pytest.fixture(autouse=True)
def _levels_as_before() -> Iterator[None]:
    ours, console, verbosity = logging.getLogger("xdpx").level, log._console.on_every_rank, theirs.get_verbosity()
    yield
    logging.getLogger("xdpx").setLevel(ours)
    log._console.on_every_rank = console
    theirs.set_verbosity(verbosity)


def _arguments(*, should_log: bool, level: int, main: str = "passive", replica: str = "warning") -> Any:
    return SimpleNamespace(
        should_log=should_log, log_level=main, log_level_replica=replica, get_process_log_level=lambda: level
    )


@pytest.mark.parametrize(("should_log", "level"), [(True, logging.DEBUG), (False, logging.ERROR)])
def test_both_libraries_speak_from_the_level_of_this_process_on(should_log, level):
    assert apply_log_level(_arguments(should_log=should_log, level=level, main="debug", replica="error")) == level
    assert logging.getLogger("xdpx").level == level
    assert theirs.get_verbosity() == level


def test_passive_changes_nothing():
    logging.getLogger("xdpx").setLevel(logging.INFO)
    theirs.set_verbosity(logging.ERROR)
    apply_log_level(_arguments(should_log=True, level=logging.WARNING))
    assert logging.getLogger("xdpx").level == logging.INFO
    assert theirs.get_verbosity() == logging.ERROR


@pytest.mark.parametrize(("level", "lines"), [(logging.INFO, 1), (logging.WARNING, 0)])
def test_a_replica_says_what_its_level_lets_through_though_it_is_not_the_first(level, lines, monkeypatch, capsys):
    monkeypatch.setenv("RANK", "1")
    log.info("before")
    apply_log_level(_arguments(should_log=False, level=level, replica="set"))
    log.info("marker")
    err = capsys.readouterr().err
    assert err.count("marker") == lines
    assert "before" not in err
