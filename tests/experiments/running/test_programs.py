import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.experiments.running.options import options_of
from xdpx.experiments.running.outputs import OutputFiles, rows_of
from xdpx.experiments.running.parts import build_parts
from xdpx.experiments.running.programs import EvalProgram, Owners
from xdpx.utils.nested_map import NestedMap


def told(names: str, **fields: list[int]) -> list[tuple[str, dict[str, int]]]:
    """Return rows as process_decode_out gives them: one per letter, which is its key; a blank is none."""
    return [(name.strip(), {key: values[at] for key, values in fields.items()}) for at, name in enumerate(names)]


HALF = [True, True, False, False]


def test_rows_find_their_example_by_the_index_they_say() -> None:
    rows = told("    ", row_in_batch=[0, 0, 1, 1])
    assert Owners().of(rows, HALF) == [0, 0, 1, 1]
    assert Owners().of([], HALF) == []
    with pytest.raises(ConfigError, match="row_in_batch 1 for a batch of 1 rows"):
        Owners().of(rows, [True])


def test_rows_that_say_no_index_find_their_example_by_their_number() -> None:
    assert Owners().of(told("    "), [True, False, True, False, True, True]) == [0, 2, 4, 5]
    assert Owners().of(told("    "), [True, True, False]) == [0, 0, 1, 1]
    with pytest.raises(ConfigError, match="4 rows for a batch of 3 rows, of which 3 are examples"):
        Owners().of(told("    "), [True, True, True])


def test_two_samples_of_half_a_batch_are_not_taken_for_one_of_all_rows() -> None:
    assert Owners().of(told("ppqq"), HALF) == [0, 0, 1, 1]
    assert Owners().of(told("0123"), HALF) == [0, 1, 2, 3]
    assert Owners().of(told("ppqqrrss"), HALF) == [0, 0, 1, 1, 2, 2, 3, 3]  # padding has samples, too


@pytest.mark.parametrize(("before", "found"), [(4, [0, 1, 2, 3]), (8, [0, 0, 1, 1])])
def test_rows_without_a_key_divide_as_in_the_batches_before(before: int, found: list[int]) -> None:
    owners = Owners()
    with pytest.raises(ConfigError, match="Say in each row by 'row_in_batch'"):
        owners.of(told("    "), HALF)
    owners.of(told(" " * before), [True] * 4)
    assert owners.of(told("    "), HALF) == found


def test_columns_become_rows_and_other_lengths_are_left_out() -> None:
    columns = {"score": np.array([1.0, 2.0]), "ids": np.arange(6).reshape(2, 3), "whole": np.zeros(5), "one": 3.0}
    assert [sorted(row) for row in rows_of(columns, 2)] == [["ids", "score"], ["ids", "score"]]


def test_a_step_counts_as_done_when_its_metrics_are_there(tmp_path: Path) -> None:
    outputs = OutputFiles(str(tmp_path / "text"), "eval_out", process=1, pickled=True)
    outputs.write_rows(7, [("0/1/0", {"ids": np.arange(2), "b": {"x": np.float32(0.5)}})])
    assert outputs.metrics_of(7) is None
    outputs.write_metrics(7, {"loss": 0.1}, {"weights": "a"})
    assert outputs.metrics_of(7) == ({"loss": 0.1}, {"weights": "a"})
    line = (tmp_path / "text" / "eval_out_7_shard_1.jsonl").read_text()
    assert json.loads(line) == {"ids": [0, 1], "b": {"x": 0.5}}
    assert (tmp_path / "text" / "eval_out_7_shard_1.pickle").is_file()


def test_processes_with_other_batches_end_instead_of_waiting_for_each_other(
    tiny: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = build_parts(tiny.Tiny(), options_of(tmp_path / "job", {"enable_summary_writer": False}))
    data = tiny.Characters(name="short", batch_size=4, num_batches=1, eval_window="full_epoch")
    monkeypatch.setattr("xdpx.experiments.running.programs._talk.gather", lambda mine: [{"x": [2]}, None])
    with pytest.raises(ConfigError, match=r"process 0 has a batch of x \[2\], process 1 has no more batch"):
        EvalProgram(parts, data, "eval_test").run({}, 3)


@pytest.mark.parametrize(
    ("fields", "told"), [({}, True), ({"eval_window": "rolling(1)"}, False), ({"eval_loop_num_batches": 1}, False)]
)
def test_an_evaluation_of_one_batch_that_nobody_asked_for_is_told(
    tiny: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], fields: dict[str, object], told: bool
) -> None:
    parts = build_parts(tiny.Tiny(), options_of(tmp_path / "job", {"enable_summary_writer": False}))
    EvalProgram(parts, tiny.Characters(name="one", batch_size=4, **fields), "eval_test")
    assert ("eval_test_one: takes a single batch each time" in capsys.readouterr().err) is told


def test_a_metric_that_counts_rows_which_only_fill_up_is_told(
    tiny: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = build_parts(tiny.Tiny(), options_of(tmp_path / "job", {"enable_summary_writer": False}))
    data = tiny.Characters(name="padded", batch_size=4, num_batches=1, eval_window="full_epoch")
    program = EvalProgram(parts, data, "eval_test")
    batch = NestedMap(x=np.zeros((4, 2)), eval_sample_weights=np.array([1, 1, 1, 0]))
    program._warn_of_padding(batch, {"weight of loss": 3.0, "weight of aux_loss": 1.0})
    assert not capsys.readouterr().err
    program._warn_of_padding(batch, {"weight of loss": 3.0, "weight of mine": 4.0})
    assert "(eval_sample_weights 0) seem to count in mine. Let compute_loss weigh rows" in capsys.readouterr().err


def test_an_evaluation_of_nothing_is_told(tiny: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = build_parts(tiny.Tiny(), options_of(tmp_path / "job", {"enable_summary_writer": False}))
    nothing = tiny.Characters(name="nothing", batch_size=4, num_batches=0, eval_window="full_epoch")
    assert EvalProgram(parts, nothing, "eval_test").run({}, 3) == {}
    assert "eval_test_nothing: the input has no batch" in capsys.readouterr().err


def test_a_long_evaluation_says_how_far_it_is(
    tiny: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = build_parts(tiny.Tiny(), options_of(tmp_path / "job", {"enable_summary_writer": False}))
    data = tiny.Characters(name="text", batch_size=4, num_batches=3, eval_window="full_epoch")
    program = EvalProgram(parts, data, "eval_test")
    assert len(list(program._batches(1))) == 3
    assert "so far" not in capsys.readouterr().err
    monkeypatch.setattr("xdpx.experiments.running.programs.SECONDS_BETWEEN_NOTES", 0.0)
    assert len(list(program._batches(1))) == 3
    assert "eval_test_text: 3 batches so far; eval_window is 'full_epoch'" in capsys.readouterr().err


def test_outputs_are_known_as_those_of_the_same_weights_and_settings_and_else_kept_aside(
    tiny: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def program(weights: str, **fields: object) -> EvalProgram:
        data = tiny.Characters(
            **{"name": "none", "batch_size": 4, "num_batches": 0, "eval_window": "full_epoch", **fields}
        )
        made = EvalProgram(parts, data, "eval_test")
        made.weights_of = lambda step: weights
        return made

    parts = build_parts(tiny.Tiny(), options_of(tmp_path / "job", {"enable_summary_writer": False}))
    program("a").run({}, 3)
    assert program("a").is_done(3)
    assert program("a", num_infeed_hosts=2, prefetch=1).is_done(3)
    assert not program("b").is_done(3)
    assert not program("a", batch_size=2).is_done(3)
    program("b", batch_size=2).run({}, 3)
    place, told = tmp_path / "job/eval_out/none", capsys.readouterr().err
    assert "is of another checkpoint and another model, metric or input; it is kept in " in told
    assert [sorted(path.name for path in folder.glob("*_3_*")) for folder in (place, place / "earlier-1")] == [
        ["eval_out_3_metrics.json", "eval_out_3_shard_0.jsonl", "eval_out_3_shard_0.pickle"]
    ] * 2
    assert program("b", batch_size=2).is_done(3)
    outputs = OutputFiles(str(place), "eval_out", process=0, pickled=False)
    outputs.write_metrics(30, {}, {})
    assert [Path(outputs.keep_earlier(step)).name for step in (30, 3)] == ["earlier-1", "earlier-2"]
    outputs.write_metrics(3, {}, {})
    (place / "eval_out_3_metrics.json").write_text("{}")  # as earlier versions wrote them, without a source
    assert program("c").is_done(3)
