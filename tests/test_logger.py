"""Lines reach console and file, summaries are averaged when taken, and nothing waits for a device."""

from __future__ import annotations

import io as memory
import logging
import math
import re
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from xdpx.logger import Log, LogFile, log, warn_user
from xdpx.utils import io


def test_every_line_is_marked_on_the_console_and_stamped_in_the_file(
    any_root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = io.join(any_root, "log.txt")
    with LogFile(path):
        log.info("one\ntwo 100%")
        log.warning("careful")
    log.info("not in the file")
    assert capsys.readouterr().err == "| one\n| two 100%\n| warning: careful\n| not in the file\n"
    stamp = r"\| \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d "
    assert re.fullmatch(f"{stamp}one\n{stamp}two 100%\n{stamp}warning: careful\n", io.open(path).read())


def test_a_second_run_continues_the_file(tmp_path: Path) -> None:
    for _ in range(2):
        with LogFile(tmp_path / "log.txt"):
            log.info("again")
    assert (tmp_path / "log.txt").read_text().count("again") == 2


def test_lines_are_in_the_file_at_once(tmp_path: Path) -> None:
    with LogFile(tmp_path / "log.txt"):
        log.info("now")
        assert "now" in (tmp_path / "log.txt").read_text()


def test_a_log_file_that_cannot_be_written_does_not_stop_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    with LogFile("/dev/full"):
        log.info("one")
        log.info("two")
    assert "cannot be written any more: [Errno 28]" in capsys.readouterr().err


def test_a_warning_may_be_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        log.warning("only once in this process", once=True)
    assert capsys.readouterr().err == "| warning: only once in this process\n"


def test_a_warning_goes_by_the_logger_that_users_of_another_library_silence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, heard = logging.getLogger("other.room"), memory.StringIO()
    handler = logging.StreamHandler(heard)
    monkeypatch.setattr(theirs, "handlers", [handler, logging.StreamHandler(sys.stderr)])
    monkeypatch.setattr(theirs, "filters", [lambda record: "dull" not in record.getMessage()])
    for text in ("dull", "bright"):
        log.warning(text, under="other.room")
    assert capsys.readouterr().err == "| warning: bright\n"  # once, and in our hand
    assert heard.getvalue() == "bright\n"
    theirs.setLevel(logging.ERROR)
    log.warning("silenced", under="other.room")
    theirs.setLevel(logging.NOTSET)
    assert not capsys.readouterr().err


def test_a_warning_of_python_s_counts_as_the_line_of_the_user() -> None:
    with pytest.warns(FutureWarning, match="old") as told:
        warn_user("old", FutureWarning)
    assert told[0].filename == __file__


def test_only_the_master_tells_what_goes_well(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    log.info("fine")
    log.warning("not fine")
    assert capsys.readouterr().err == "| warning: not fine\n"


def test_summaries_are_averages_weighted_by_samples() -> None:
    log.take_summaries()
    log.add_summary("a", 1.0)
    log.add_summary("a", 4.0, n=2)
    log.add_summary("b", 7)
    assert log.take_summaries() == {"a": 3.0, "b": 7.0}
    assert log.take_summaries() == {}


def test_many_summaries_in_half_precision_have_their_average() -> None:
    log.take_summaries()
    for _ in range(3000):
        log.add_summary("a", np.float16(1.0))
    assert log.take_summaries() == {"a": 1.0}


class DeviceNumber:
    """A number that notices when somebody waits for it."""

    waited = 0

    def __init__(self, value: float) -> None:
        self.value = value

    def detach(self) -> DeviceNumber:
        return self

    def __mul__(self, n: float) -> DeviceNumber:
        return DeviceNumber(self.value * n)

    def __radd__(self, other: float) -> DeviceNumber:
        return DeviceNumber(self.value + other)

    def __add__(self, other: DeviceNumber) -> DeviceNumber:
        return DeviceNumber(self.value + other.value)

    def __float__(self) -> float:
        DeviceNumber.waited += 1
        return self.value


def test_a_summary_is_one_number() -> None:
    log.add_summary("one", np.ones(()))
    assert log.take_summaries() == {"one": 1.0}
    for value in (np.ones(3), np.ones((0, 2))):
        with pytest.raises(ValueError, match=r"add_summary: 'several' has \d elements. Give one number"):
            log.add_summary("several", value)
    assert log.take_summaries() == {}


def test_adding_a_summary_waits_for_no_device() -> None:
    log.take_summaries()
    for value in (1.0, 2.0):
        log.add_summary("x", DeviceNumber(value))
    assert DeviceNumber.waited == 0
    assert log.take_summaries() == {"x": 1.5}


def test_accumulated_values_are_reduced_together() -> None:
    def reduce_fn(values: list[Any]) -> dict[str, float]:
        return {"sum": sum(a for a, _ in values), "most": max(b for _, b in values)}

    for pair in [(1, 5), (2, 3)]:
        log.add_accumulative_summary("name", pair, reduce_fn, prefix="valid_")
    assert log.take_accumulated() == {"valid_sum": 3.0, "valid_most": 5.0}
    assert log.take_accumulated() == {}


def test_progress_is_silent_lines_where_nobody_watches(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("xdpx.utils.progress.SECONDS_BETWEEN_LINES", 0.0)
    assert list(log.progress([10, 20], what="counting", unit="rows")) == [10, 20]
    lines = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"\| counting: 50.0% \(1 of 2\), [\d,.]+ rows/s, 0 s left", lines[0])
    assert len(lines) == 2


def test_progress_knows_what_was_done_before() -> None:
    bar = log.progress(total=200, what="training", unit="steps")
    bar.start_at(100)
    bar.update(50)
    bar.note("loss 0.5")
    assert str(bar).startswith("training: 75.0% (150 of 200), ")
    assert str(bar).endswith("loss 0.5")
    bar.close()


def test_a_bar_on_a_terminal_leaves_the_lines_whole(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("xdpx.utils.progress.on_terminal", lambda: True)
    with log.progress(total=10, what="bar") as bar:
        bar.update(5)
        log.info("a line")
    assert "| a line\n" in capsys.readouterr().err


def test_the_root_logger_is_left_alone() -> None:
    assert not logging.getLogger("xdpx").propagate
    assert isinstance(log, Log)


def test_early_lines_come_into_the_file_once_it_may_be_opened(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    with log.early() as early:
        log.info("before")
        assert not path.exists()
        early.open_file(path)
        log.info("after")
    log.info("outside")
    assert [line.split()[-1] for line in path.read_text().splitlines()] == ["before", "after"]


def test_early_lines_are_forgotten_where_no_log_file_is_wanted(tmp_path: Path) -> None:
    with log.early() as early:
        log.info("before")
        early.open_file(None)
        log.info("after")
        assert early._records == []
    assert list(tmp_path.iterdir()) == []


def test_a_distribution_is_shown_by_its_quantiles() -> None:
    log.take_summaries()
    for part in range(4):
        log.add_histogram("gate", np.arange(25.0).reshape(5, 5) + 25 * part)
    log.add_histogram("broken", np.array([np.nan, np.inf]))
    found = log.take_summaries()
    assert [found[f"gate_p{percent}"] for percent in (5, 25, 50, 75, 95)] == [5, 25, 50, 74, 94]
    assert math.isnan(found["broken_p50"])
    assert log.take_summaries() == {}


def test_of_very_many_numbers_some_are_kept_evenly() -> None:
    log.take_summaries()
    log.add_histogram("many", np.arange(1_000_000.0))
    assert log.take_summaries()["many_p50"] == pytest.approx(500_000, rel=0.001)


def test_what_only_fills_up_a_round_counts_for_nothing() -> None:
    log.take_accumulated()
    with log.scoring():
        log.add_summary("a", 1.0)
        log.add_accumulative_summary("b", 1, lambda values: {"count": len(values)})
        with log.muted():
            log.add_summary("a", 100.0)
            log.add_histogram("c", np.ones(3))
            log.add_accumulative_summary("b", 1, lambda values: {"count": len(values)})
    found = log.take_accumulated()
    assert (found["a"], found["count"]) == (1.0, 1.0)


def test_texts_and_pictures_are_handed_over_once() -> None:
    from matplotlib.figure import Figure

    log.take_notes()
    log.add_text("example", "first")
    log.add_text("example", "second")
    log.add_figure("drawn", Figure(figsize=(1, 1)))
    log.add_figure("bytes", b"png")
    texts, pictures = log.take_notes()
    assert texts == {"example": "second"}
    assert pictures["drawn"].startswith(b"\x89PNG")
    assert pictures["bytes"] == b"png"
    assert log.take_notes() == ({}, {})


def test_what_an_evaluation_that_is_cut_short_has_added_is_forgotten_and_that_of_training_stays() -> None:
    log.take_summaries()
    log.take_accumulated()
    for scored, value in ((False, 1.0), (True, 9.0)):
        with log.scoring() if scored else nullcontext():
            log.add_summary("mean", value)
            log.add_accumulative_summary("total", value, lambda values: {"total": sum(values)})
    log.forget_scored()
    assert log.take_accumulated() == {"total": 1.0}
    assert log.take_summaries() == {"mean": 1.0}
