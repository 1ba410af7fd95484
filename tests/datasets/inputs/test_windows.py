from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.config.hparams import build, from_json, to_fiddle, to_json
from xdpx.datasets.inputs import (
    BaseInput,
    EvalWindow,
    first,
    full_epoch,
    parse_window,
    rolling,
    walk,
    window_of,
    with_hosts,
)
from xdpx.utils.nested_map import NestedMap


class Counting(BaseInput):
    """Three batches, or the same three again and again; keeps a log of its calls."""

    class HParams(BaseInput.HParams):
        repeat: bool = False

    def __init__(self, hparams: Any) -> None:
        super().__init__(hparams)
        self.log: list[str] = []
        self.at = 0

    def get_next(self) -> NestedMap:
        if self.at == 3 and not self.hparams.repeat:
            self.log.append("StopIteration")
            raise StopIteration
        self.log.append("next")
        self.at += 1
        return NestedMap(number=np.array([(self.at - 1) % 3]))

    def reset(self) -> None:
        super().reset()
        self.log.append("reset")
        self.at = 0


def run(data: Counting, times: int = 1) -> list[list[int]]:
    return [[int(batch.number[0]) for batch in walk(data, data.window)] for _ in range(times)]


NEXT3 = ["next", "next", "next", "StopIteration", "reset"]


@pytest.mark.parametrize(
    ("fields", "log", "seen"),
    [
        ({"reset_for_eval": True, "eval_loop_num_batches": None}, NEXT3, [[0, 1, 2], [0, 1, 2]]),
        ({"reset_for_eval": True, "eval_loop_num_batches": -1}, NEXT3, [[0, 1, 2], [0, 1, 2]]),
        ({"reset_for_eval": True, "eval_loop_num_batches": 2}, ["next", "next", "reset"], [[0, 1], [0, 1]]),
        ({"reset_for_eval": True, "eval_loop_num_batches": 1}, ["next", "reset"], [[0], [0]]),
        ({"eval_loop_num_batches": 2, "repeat": True}, ["next", "next"], [[0, 1], [2, 0]]),
        ({"eval_window": full_epoch}, NEXT3, [[0, 1, 2], [0, 1, 2]]),
        ({"eval_window": first(2)}, ["next", "next", "reset"], [[0, 1], [0, 1]]),
        ({"eval_window": rolling(2), "repeat": True}, ["next", "next"], [[0, 1], [2, 0]]),
    ],
)
def test_each_cell_of_the_table_makes_its_calls(fields: dict[str, Any], log: list[str], seen: list[list[int]]) -> None:
    data = Counting(**fields)
    assert run(data, 2) == seen
    assert data.log == log * 2


def test_the_default_number_with_a_reset_is_refused_with_what_to_write() -> None:
    with pytest.raises(ConfigError) as caught:
        Counting.HParams(name="dev", reset_for_eval=True).Instantiate()
    told = str(caught.value)
    assert "dev.reset_for_eval" in told
    assert "Write eval_window='full_epoch'" in told
    assert "eval_window='first(1)'" in told


def test_a_default_stays_a_default_on_its_way_through_json_and_fiddle() -> None:
    p = Counting.HParams(reset_for_eval=True)
    for same in (from_json(to_json(p)), p.clone(), with_hosts(p, 0, 2)):
        with pytest.raises(ConfigError, match="eval_window='first"):
            same.Instantiate()
    pytest.importorskip("fiddle")
    with pytest.raises(ConfigError, match="eval_window='first"):
        build(to_fiddle(p))


def test_the_unsupported_cell_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Write eval_window='full_epoch' .* or eval_window='rolling\(n\)'"):
        Counting(eval_loop_num_batches=None)


@pytest.mark.parametrize(
    "fields",
    [
        {"eval_window": "rolling(2)", "reset_for_eval": True},
        {"eval_window": "full_epoch", "reset_for_eval": False},
        {"eval_window": "full_epoch", "eval_loop_num_batches": 5},
        {"eval_window": "first(2)", "eval_loop_num_batches": 1},
        {"eval_window": "first(2)", "eval_loop_num_batches": None},
    ],
)
def test_fields_of_pax_that_contradict_the_window_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="Leave it out"):
        Counting(**fields)


def test_fields_of_pax_that_agree_with_the_window_are_fine() -> None:
    p = Counting.HParams(eval_window="first(2)", reset_for_eval=True, eval_loop_num_batches=2)
    assert window_of(p) == EvalWindow("first", 2)
    assert window_of(p.set(eval_window=full_epoch, eval_loop_num_batches=-1)) == EvalWindow("full_epoch")


@pytest.mark.parametrize("text", ["all", "first", "first(0)", "rolling(-1)", "first(2", "full_epoch(3)", ""])
def test_what_is_no_window_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match=r"Write 'full_epoch', 'first\(n\)' or 'rolling\(n\)'"):
        parse_window(text)
    with pytest.raises(ConfigError, match=r"input\.eval_window"):
        Counting(eval_window=text)


@pytest.mark.parametrize("text", ["full_epoch", "first(3)", "rolling(12)"])
def test_a_window_is_written_as_it_is_read(text: str) -> None:
    assert str(parse_window(text)) == text


def test_no_evaluation_sees_less_than_one_batch() -> None:
    with pytest.raises(ConfigError, match="at least one batch"):
        Counting(reset_for_eval=True, eval_loop_num_batches=0)


def test_a_rolling_window_says_that_data_ended_too_early() -> None:
    data = Counting(eval_window=rolling(2))
    run(data)
    with pytest.raises(ConfigError, match=r"'rolling\(2\)' reached the end of the data after 1 batches.*repeat=True"):
        run(data)


def test_a_walk_takes_its_window_from_the_input_or_from_a_text() -> None:
    data = Counting(eval_window=first(2))
    assert [int(batch.number[0]) for batch in walk(data)] == [0, 1]
    assert [int(batch.number[0]) for batch in walk(data, "first(1)")] == [0]


def test_a_window_longer_than_the_data_ends_with_them() -> None:
    data = Counting(eval_window=first(5))
    assert run(data, 2) == [[0, 1, 2], [0, 1, 2]]


def test_an_evaluation_that_is_left_early_leaves_no_trace() -> None:
    data = Counting(eval_window=full_epoch)
    batches = walk(data, data.window)
    next(batches)
    batches.close()
    assert data.log == ["next", "reset"]
    assert run(data) == [[0, 1, 2]]


def test_tensorflows_end_of_data_is_an_end_too() -> None:
    out_of_range = type("OutOfRangeError", (Exception,), {"__module__": "tensorflow.python.framework.errors_impl"})

    class Foreign(Counting):
        def get_next(self) -> NestedMap:
            if self.at == 2:
                raise out_of_range
            return super().get_next()

    assert run(Foreign(eval_window=full_epoch), 2) == [[0, 1], [0, 1]]
    ended = Foreign(eval_window=full_epoch)
    assert [ended.get_next().number.item(0), ended.get_next().number.item(0), ended.peek_padded()] == [0, 1, None]


def test_another_error_is_no_end() -> None:
    class Broken(Counting):
        def get_next(self) -> NestedMap:
            raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        run(Broken(eval_window=full_epoch))
