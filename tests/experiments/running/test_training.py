from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.tiers import nightly, some
from xdpx.checkpoints import spmd_folders
from xdpx.checkpoints.checkpointer import NoCheckpoint
from xdpx.checkpoints.spmd_files import named_leaves
from xdpx.checkpoints.spmd_folders import read_metadata
from xdpx.commands.visualise import expand
from xdpx.config.faults import ConfigError
from xdpx.experiments.running import programs, run
from xdpx.experiments.running.options import options_of
from xdpx.experiments.running.parts import build_parts
from xdpx.experiments.running.starting import begin
from xdpx.experiments.running.training import train
from xdpx.reports.run_logs import read_table
from xdpx.tasks.spmd.early_stopping import TargetReached
from xdpx.tasks.spmd.noise import VariationalNoise
from xdpx.tasks.spmd.single_task import SingleTask
from xdpx.training.replaying import VARIABLE, Replayed
from xdpx.training.status import read_status
from xdpx.utils import io

ROOT = Path(__file__).parents[3]
QUIET: dict[str, Any] = {"plots": False, "enable_summary_writer": False}
TIMES = {"ups", "wps", "train_wall"}
KILLS = 2 * int(os.environ.get("XDPX_KILLS", "1"))
"""Of one job that saves ten times or so. `make faults` takes more."""
CUTS: dict[str, tuple[str, list[tuple[int, str]]]] = {
    "evaluating twice": ("rolling(2)", [(1, "evaluating"), (1, "evaluating")]),
    "decoding twice": ("full_epoch", [(5, "decoding"), (1, "decoding")]),
    "evaluating, then decoding": ("rolling(2)", [(1, "evaluating"), (5, "decoding")]),
}
"""A window of the inputs, and after how many batches of evaluation and decoding a signal cuts which of them."""


def steps_in(folder: str) -> list[int]:
    return sorted(int(path.name[-8:]) for path in Path(folder, "checkpoints").glob("checkpoint_*"))


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


def frozen(target: Path) -> Path:
    """Copy what a job needs: each process reads the code again, and an edit between two of them may change bits."""
    shutil.copytree(ROOT / "xdpx", target / "xdpx", ignore=shutil.ignore_patterns("__pycache__"))
    for name in (Path(__file__).with_name("tiny.py"), ROOT / "LICENSE"):
        copy = target / name.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(name, copy)
    return target


def test_a_job_leaves_every_file_of_the_layout(job: str) -> None:
    there = {str(path.relative_to(job)) for path in Path(job).rglob("*") if path.is_file()}
    assert {
        "model_params.txt", "experiment_cls_vars.txt", "post_init_model_params.txt", "train_state_provenance.txt",
        "input_specs.json", "run.json", "status.json", "log.txt", "train.log.tsv", "valid.log.tsv",
        "eval_out/text/eval_out_4_shard_0.jsonl", "eval_out/text/eval_out_8_shard_0.pickle",
        "decoder_out/said/decoder_out_8_shard_0.jsonl", "decoder_out/said/decoder_out_8_shard_0.pickle",
        "checkpoints/checkpoint_00000008/metadata", "checkpoints/checkpoint_00000008/train_input/process_0-of-1",
    } <= there  # fmt: skip
    assert {name.split("/")[1] for name in there if name.startswith("summaries/")} == {
        "train", "eval_train", "eval_test_text", "decode_test_said"
    }  # fmt: skip
    assert steps_in(job) == [0, 3, 6, 8]
    assert "dtype : float32" in Path(job, "post_init_model_params.txt").read_text()
    assert "random initialisation" in Path(job, "train_state_provenance.txt").read_text()


def test_a_job_learns_and_tells_how_fast_and_how_well_the_device_is_used(job: str) -> None:
    rows, valid = read_table(f"{job}/train.log.tsv"), read_table(f"{job}/valid.log.tsv")
    assert rows["loss"][-1] < rows["loss"][0] - 0.5
    assert valid["valid_log_pplx"][1] < valid["valid_log_pplx"][0]
    assert rows["tokens_per_second_per_device"].min() > 0
    assert rows["mfu"].min() > 0
    assert valid["best_score"][-1] == valid["valid_log_pplx"].min()
    assert Path(job, "plots", "loss.png").is_file()
    assert expand(job) == [job]  # x-viz can draw it


def test_summaries_have_the_names_of_pax(job: str) -> None:
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = {}
    for program in ("train", "eval_test_text", "decode_test_said"):
        events = reading.EventAccumulator(f"{job}/summaries/{program}")
        events.Reload()
        found[program] = events
    tags = set(found["train"].Tags()["scalars"])
    assert {
        "loss", "Steps/sec", "lr_scalar", "learning/lr_scalar", "learning/raw_grad_norm_scalar",
        "learning/clipped_grad_norm_scalar", "learning/applied_grad_norm_scalar", "learning/grad_scale_scalar",
        "learning/is_valid_step_scalar", "learning/var_norm_scalar", "Metrics/log_pplx", "Metrics/log_pplx-weight",
        "vars/params/lm/final_ln/scale_scalar",
    } <= tags  # fmt: skip
    assert {"loss", "Metrics/avg_xent", "Metrics/num_predictions-weight"} <= set(
        found["eval_test_text"].Tags()["scalars"]
    )
    weights = [event.value for event in found["eval_test_text"].Scalars("Metrics/log_pplx-weight")]
    assert weights == [128.0, 128.0]  # two batches of 64 tokens each time
    assert [event.value for event in found["eval_test_text"].Scalars("Metrics/num_predictions")] == weights
    assert {tag.split("/")[0] for tag in found["decode_test_said"].Tags()["scalars"]} == {
        "decode_metrics", "process_decode_metrics"
    }  # fmt: skip


def test_a_finished_job_is_left_as_it_is(tiny: ModuleType, job: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in Path(job, "checkpoints").rglob("*")}
    assert run(tiny.Tiny, job_log_dir=job, **QUIET) == 0
    assert {path: path.stat().st_mtime_ns for path in Path(job, "checkpoints").rglob("*")} == before


def test_a_job_that_was_interrupted_ends_with_the_same_bits(tiny: ModuleType, job: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "job")

    class Interrupted(tiny.Characters):  # type: ignore[name-defined, misc]
        def get_next(self) -> Any:
            if self.get_state() == {"next": 4}:
                os.kill(os.getpid(), signal.SIGTERM)
            return super().get_next()

    class Ends(tiny.Tiny):  # type: ignore[name-defined, misc]
        def datasets(self) -> list[Any]:
            train, text = super().datasets()
            return [Interrupted.HParams(name="train", batch_size=4, is_training=True), text]

    assert run(Ends, job_log_dir=folder, eval_on_test=True, **QUIET) == 85
    assert steps_in(folder)[-1] == 4
    assert getattr(read_status(folder), "status", None) == "preempted"
    assert run(tiny.Tiny, job_log_dir=folder, eval_on_test=True, **QUIET) == 0
    assert same(tiny.state_of(folder, 8), tiny.state_of(job, 8))
    mine, theirs = read_table(f"{folder}/train.log.tsv"), read_table(f"{job}/train.log.tsv")
    assert mine["loss"].tolist() == theirs["loss"].tolist()
    name = "eval_out/text/eval_out_8_metrics.json"
    assert tiny.metrics_in(folder, name) == tiny.metrics_in(job, name)


@pytest.mark.parametrize("cuts", some(CUTS, ["evaluating, then decoding"]))
def test_a_signal_ends_an_evaluation_or_decoding_which_comes_first_when_the_job_goes_on_to_the_same_end(
    tiny: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cuts: str
) -> None:
    window, signals = CUTS[cuts]
    given: dict[int, list[Any]] = {}  # what early_stopping_fn was given at each step

    class Asked(tiny.Tiny):  # type: ignore[name-defined, misc]
        STEPS, SAVE, EVAL, WINDOW = 6, 2, 4, window

        @staticmethod
        def STOP(metrics: Any, mode: str, step: int, last: bool, path: str = "") -> bool:
            given.setdefault(step, []).append((mode, dict(metrics)))
            return False

        def decode_datasets(self) -> list[Any]:
            count = 2 if window == "full_epoch" else None
            return [tiny.Characters.HParams(name="said", batch_size=4, num_batches=count, eval_window=window)]

    def end(name: str) -> tuple[int, Any]:
        folder = str(tmp_path / name)
        code = run(Asked, job_log_dir=folder, eval_on_test=True, decode_during_train=True, **QUIET)
        valid = read_table(f"{folder}/valid.log.tsv")
        return code, {column: valid[column].tolist() for column in valid.columns if column not in TIMES}

    whole, asked = end("whole"), dict(given)
    given.clear()
    check, left = programs.check_content, [0]

    def counted(*args: Any, **options: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return check(*args, **options)

    monkeypatch.setattr(programs, "check_content", counted)
    for number, cut_at in signals:
        left[0] = number
        assert end("job")[0] == 85
        checkpoint = max((tmp_path / "job/checkpoints").glob("checkpoint_*"))
        assert checkpoint.name[-8:] == ("00000004" if cut_at == "evaluating" else "00000006")
        assert read_metadata(str(checkpoint))["facts"]["progress"]["cut_at"] == cut_at
    assert end("job") == whole
    assert given == asked
    assert same(tiny.state_of(str(tmp_path / "job"), 6), tiny.state_of(str(tmp_path / "whole"), 6))
    ends = [
        read_metadata(str(tmp_path / f"{name}/checkpoints/checkpoint_00000006"))["facts"] for name in ("job", "whole")
    ]
    for facts in ends:
        facts["progress"].pop("train_seconds")
    assert ends[0]["progress"] == ends[1]["progress"]


def test_a_job_may_save_at_a_signal_and_go_on(tiny: ModuleType, tmp_path: Path) -> None:
    class Told(tiny.Characters):  # type: ignore[name-defined, misc]
        def get_next(self) -> Any:
            if self.get_state() == {"next": 1}:
                os.kill(os.getpid(), signal.SIGTERM)
            return super().get_next()

    class Goes(tiny.Tiny):  # type: ignore[name-defined, misc]
        def datasets(self) -> list[Any]:
            return [Told.HParams(name="train", batch_size=4, is_training=True)]

    folder = str(tmp_path / "job")
    assert run(Goes(STEPS=4, SAVE=100, EVAL=0), job_log_dir=folder, exit_after_ondemand_checkpoint=False, **QUIET) == 0
    assert steps_in(folder) == [0, 2, 4]


@nightly("tests/engines/spmd/test_real_curves.py::test_a_checkpoint_is_restored_bit_for_bit_on_another_mesh_and_back")
@pytest.mark.slow
def test_a_run_that_is_longer_now_goes_on_with_another_mesh(tiny: ModuleType, job: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "job")
    assert run(tiny.Tiny(STEPS=4, EVAL=0), job_log_dir=folder, **QUIET) == 0
    assert run(tiny.Tiny(EVAL=0, ICI_MESH_SHAPE=(2, 2, 1)), job_log_dir=folder, **QUIET) == 0
    mine, theirs = tiny.state_of(folder, 8), tiny.state_of(job, 8)
    assert int(mine["step"]) == 8
    assert mine.keys() == theirs.keys()
    for name in mine:
        np.testing.assert_allclose(mine[name], theirs[name], rtol=2e-3, atol=2e-4)


def test_an_update_that_is_no_number_is_skipped_counted_and_taken_again_from_its_file(
    tiny: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path / "job")
    assert run(tiny.Tiny(POISON=2, STEPS=4, EVAL=0, SAVE=1), job_log_dir=folder, **QUIET) == 0
    assert read_table(f"{folder}/train.log.tsv")["skipped"].tolist() == [0.0, 1.0]
    before, after = tiny.state_of(folder, 2), tiny.state_of(folder, 3)
    assert int(after.pop("step")) == int(before.pop("step")) + 1
    assert same(before, after)
    assert all(np.isfinite(leaf).all() for leaf in tiny.state_of(folder, 4).values())
    monkeypatch.setenv(VARIABLE, f"{folder}/nonfinite/update-3.pt")
    with pytest.raises(Replayed) as found:
        run(tiny.Tiny(STEPS=4), job_log_dir=str(tmp_path / "again"), **QUIET)
    said = Path(folder, "nonfinite/update-3.txt").read_text().splitlines()
    assert (found.value.code, found.value.lines) == (1, [line for line in said if "those after update" not in line])


def test_every_function_is_traced_and_compiled_once_in_a_whole_run(
    tiny: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Noisy(tiny.Tiny):  # type: ignore[misc, name-defined]
        def task(self) -> Any:
            return super().task().set(vn=VariationalNoise(vn_scale=0.1, vn_regex="emb.*", vn_start_step=2))

    traced = Counter[str]()

    def counted(name: str) -> Any:
        plain = getattr(SingleTask, name)

        def traces(*args: Any) -> Any:
            traced[name] += 1
            return plain(*args)

        return traces

    for name in ("init", "train_loss", "eval_metrics", "decode"):
        monkeypatch.setattr(SingleTask, name, counted(name))
    options = options_of(str(tmp_path / "job"), {**QUIET, "eval_on_test": True, "decode_during_train": True})
    parts = build_parts(Noisy(STEPS=5, EVAL=2, BATCHES=2), options)
    assert train(parts).finished
    assert set(parts.engine.compilations.values()) == {1}
    assert traced == {"init": 1, "train_loss": 2, "eval_metrics": 1, "decode": 1}  # the loss also for its FLOPs
    assert int(tiny.state_of(str(tmp_path / "job"), 5)["step"]) == 5
    assert Path(tmp_path, "job/checkpoints/checkpoint_00000005/train_input/process_0-of-1").read_text() == (
        '{"train": {"next": 10}}'
    )


def test_only_so_many_checkpoints_stay_and_others_as_time_goes_by(tiny: ModuleType, tmp_path: Path) -> None:
    fields = {"STEPS": 4, "SAVE": 1, "EVAL": 0, "KEEP": 2}
    run(tiny.Tiny(**fields, HOURS=None), job_log_dir=tmp_path / "few", **QUIET)
    assert steps_in(str(tmp_path / "few")) == [3, 4]
    run(tiny.Tiny(**fields), job_log_dir=tmp_path / "spread", jax_fully_async_checkpoint=True, **QUIET)
    assert steps_in(str(tmp_path / "spread")) == [0, 3, 4]  # the first of twelve hours


def test_a_run_ends_when_its_target_is_reached(tiny: ModuleType, tmp_path: Path) -> None:
    target = TargetReached.HParams(metric="log_pplx", target=100.0)
    assert run(tiny.Tiny(STOP=target, EVAL=2), job_log_dir=tmp_path / "job", eval_on_test=True, **QUIET) == 0
    status = read_status(str(tmp_path / "job"))
    assert status is not None
    assert (status.step, status.reason) == (2, "early_stopping_fn: stop at step 2")
    assert run(tiny.Tiny(STOP=target, EVAL=2), job_log_dir=tmp_path / "job", eval_on_test=True, **QUIET) == 0
    assert steps_in(str(tmp_path / "job")) == [0, 2]  # the same job does not train on; with another target, it does
    other = TargetReached.HParams(metric="log_pplx", target=99.0)
    assert run(tiny.Tiny(STOP=other, EVAL=2), job_log_dir=tmp_path / "job", eval_on_test=True, **QUIET) == 0
    assert steps_in(str(tmp_path / "job")) == [0, 2, 3, 4]


def test_what_was_reached_when_the_data_ran_out_is_evaluated_and_decoded(tiny: ModuleType, tmp_path: Path) -> None:
    class Short(tiny.Tiny):  # type: ignore[name-defined, misc]
        def datasets(self) -> Any:
            train, text = super().datasets()
            return [train.set(num_batches=3), text]

    for _ in range(2):
        run(Short(EVAL=2, SAVE=3), job_log_dir=tmp_path, eval_on_test=True, decode_during_train=True, **QUIET)
        assert read_table(str(tmp_path / "valid.log.tsv"))["step"].tolist() == [2, 3]
    assert (tmp_path / "decoder_out" / "said" / "decoder_out_3_metrics.json").is_file()


@nightly("test_a_signal_ends_an_evaluation_or_decoding_which_comes_first_when_the_job_goes_on_to_the_same_end")
@pytest.mark.slow
def test_evaluations_that_roll_go_on_where_they_were(tiny: ModuleType, tmp_path: Path) -> None:
    whole, halves = str(tmp_path / "whole"), str(tmp_path / "halves")
    rolling = {"WINDOW": "rolling(1)", "EVAL": 2}
    run(tiny.Tiny(STEPS=4, **rolling), job_log_dir=whole, eval_on_test=True, **QUIET)
    for steps in (2, 4):
        run(tiny.Tiny(STEPS=steps, **rolling), job_log_dir=halves, eval_on_test=True, **QUIET)
    files = [Path(folder, "eval_out/text/eval_out_4_shard_0.jsonl").read_text() for folder in (whole, halves)]
    assert files[0] == files[1]


def test_weights_of_another_job_are_taken_over_by_rules(tiny: ModuleType, job: str, tmp_path: Path) -> None:
    twice = ("(params/lm/transformer/x_layers)_./(.*)", "{}_0/{}")
    rest = ("params/lm/(.*)", "params/lm/{}")
    rules = {job: {"load_rules": [twice, rest], "ignore_rules": [".*final_ln.*"], "step": 6}}
    folder = str(tmp_path / "job")
    run(tiny.Tiny(INIT=rules, STEPS=1, EVAL=0, LAYERS=2), job_log_dir=folder, **QUIET)
    begun, there = tiny.state_of(folder, 0), tiny.state_of(job, 6)
    assert int(begun["step"]) == 0
    np.testing.assert_array_equal(begun["params/lm/softmax/emb_var"], there["params/lm/softmax/emb_var"])
    assert not np.array_equal(begun["params/lm/final_ln/bias"], there["params/lm/final_ln/bias"])
    origins = Path(folder, "train_state_provenance.txt").read_text()
    assert "params/lm/softmax/emb_var: " + job in origins
    assert "params/lm/final_ln/bias: random initialisation" in origins
    blocks = [begun[f"params/lm/transformer/x_layers_{index}/ff_layer/ffn_layer1/linear/w"] for index in (0, 1)]
    np.testing.assert_array_equal(*blocks)  # two that begin as one tensor are two arrays, or no update could be taken


def test_an_optimizer_state_of_one_job_stays_beside_weights_of_another(
    tiny: ModuleType, job: str, tmp_path: Path
) -> None:
    whole = {"load_rules": [("(params/lm/transformer/.*)", "{}")], "load_opt_states": True, "load_step": True}
    rules = {f"{job}/checkpoints/checkpoint_00000003": whole, job: {"step": 6}}
    start = begin(build_parts(tiny.Tiny(INIT=rules), options_of(tmp_path / "job", {})), 8)
    found, first, second = dict(named_leaves(start.state)), tiny.state_of(job, 3), tiny.state_of(job, 6)
    for name, value in found.items():
        of_first = name.startswith(("opt_state", "step", "params/lm/transformer"))
        np.testing.assert_array_equal(value, (first if of_first else second)[name])
        assert f"checkpoint_0000000{3 if of_first else 6}" in start.provenance[name]


@pytest.mark.parametrize(
    ("pattern", "template", "told"),
    [
        ("params/encoder/(.*)", "params/lm/{}", "matches no variable"),
        ("params/lm/(.*", "params/lm/{}", "is not a regular expression: missing"),
        ("params/lm/(.*)", "params/{}/{}", r"'params/\{\}/\{\}' does not fit 'params/lm/\(\.\*\)'"),
    ],
)
def test_a_rule_that_fits_nothing_is_refused(
    tiny: ModuleType, job: str, tmp_path: Path, pattern: str, template: str, told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        run(tiny.Tiny(INIT={job: {"load_rules": [(pattern, template)]}}), job_log_dir=tmp_path / "job", **QUIET)


@pytest.mark.parametrize(
    ("given", "told"),
    [({"load_rulez": []}, "Did you mean 'load_rules'"), ("params/.*", "is 'params/.*'. Give CheckpointLoadingRules")],
)
def test_what_is_no_loading_rule_is_refused(
    tiny: ModuleType, job: str, tmp_path: Path, given: object, told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        begin(build_parts(tiny.Tiny(INIT={job: given}), options_of(tmp_path / "job", {})), 8)


def test_a_loading_rule_beside_others_that_matches_nothing_is_told_of(
    tiny: ModuleType, job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = {"load_rules": [("params/encoder/(.*)", "{}"), ("(.*)", "{}")], "ignore_rules": ["final_ln"]}
    begin(build_parts(tiny.Tiny(INIT={job: rules}), options_of(tmp_path / "job", {})), 8)
    told = capsys.readouterr().err
    assert "load_rules: 'params/encoder/(.*)' matches no variable" in told
    assert "ignore_rules: 'final_ln' matches no variable. Write an expression for whole names" in told
    with pytest.raises(ConfigError, match="'final_ln' matches no variable"):
        begin(build_parts(tiny.Tiny(INIT={job: {**rules, "safe_load": True}}), options_of(tmp_path / "job", {})), 8)


def test_a_job_may_be_anywhere(tiny: ModuleType) -> None:
    folder = f"memory://jobs/{uuid.uuid4().hex}"
    for steps in (1, 2):
        assert run(tiny.Tiny(STEPS=steps, EVAL=0), job_log_dir=folder, **QUIET) == 0
    assert io.listdir(f"{folder}/checkpoints") == [f"checkpoint_{step:08d}" for step in (0, 1, 2)]
    assert io.isfile(f"{folder}/train.log.tsv")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mdoe": "train"}, "Did you mean 'mode'"),
        ({"mode": "tain"}, "Use one of"),
        ({"restore_checkpoint_dir": "x"}, "init_from_checkpoint_rules"),
        ({"mode": "decode", "restore_checkpoint_step": 3}, "decode_once"),
        ({"async_timeout_secs": 0}, "Give seconds above 0"),
        ({"multiprocess_gpu": True}, "this process found no other"),
    ],
)
def test_options_that_make_no_sense_are_refused(tiny: ModuleType, tmp_path: Path, options: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        run(tiny.Tiny, job_log_dir=tmp_path / "job", **options)
    assert not (tmp_path / "job").exists()


def test_a_process_waits_for_others_as_long_as_it_was_told(tiny: ModuleType, tmp_path: Path) -> None:
    told, silent = (
        build_parts(tiny.Tiny(), options_of(tmp_path / "job", given)) for given in ({"async_timeout_secs": 7}, {})
    )
    waits = [parts.ranks.barrier.__self__._milliseconds for parts in (told, silent)]  # type: ignore[attr-defined]
    assert waits == [7_000, 1_800_000]


def test_batches_that_are_read_ahead_train_the_same(
    tiny: ModuleType, job: str, tmp_path: Path, reading_threads: Any
) -> None:
    class Ahead(tiny.Tiny):  # type: ignore[name-defined, misc]
        def datasets(self) -> list[Any]:
            return [template.set(prefetch=2) for template in super().datasets()]

    folder = str(tmp_path / "job")
    for steps in (3, 8):
        assert run(Ahead(STEPS=steps), job_log_dir=folder, eval_on_test=True, **QUIET) == 0
    assert same(tiny.state_of(folder, 8), tiny.state_of(job, 8))
    assert not reading_threads()


def test_an_input_may_leave_its_place_out_of_checkpoints(
    tiny: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Forgetful(tiny.Tiny):  # type: ignore[name-defined, misc]
        def datasets(self) -> list[Any]:
            train, text = super().datasets()
            return [train.set(input_checkpointing_enabled=False, input_random_seed=5), text]

    folder, seen = str(tmp_path / "job"), tmp_path / "seen"
    for steps in (2, 4):
        run(Forgetful(STEPS=steps, EVAL=0, SEEN=str(seen)), job_log_dir=folder, **QUIET)
    assert seen.read_text().split() == ["0", "1", "0", "1"]
    told = capsys.readouterr().err
    assert "input_checkpointing_enabled is False: the training input starts over" in told
    assert told.count("sees the first data again") == 1


def test_a_folder_with_something_else_is_left_alone(tiny: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear all")
    with pytest.raises(ConfigError, match="not belong to a job"):
        run(tiny.Tiny, job_log_dir=tmp_path, **QUIET)


def test_inputs_must_be_told_apart_and_give_what_was_said(tiny: ModuleType, tmp_path: Path) -> None:
    class Twice(tiny.Tiny):  # type: ignore[name-defined, misc]
        def datasets(self) -> list[Any]:
            return [tiny.Characters.HParams(name="a", batch_size=4, is_training=training) for training in (True, False)]

    class Other(tiny.Tiny):  # type: ignore[name-defined, misc]
        def input_specs(self) -> Any:
            return {name: ((8, *shape[1:]), dtype) for name, (shape, dtype) in super().input_specs().items()}

    with pytest.raises(ConfigError, match="two inputs are named 'a'"):
        run(Twice, job_log_dir=tmp_path / "job", **QUIET)
    with pytest.raises(ConfigError, match="the training input gives"):
        run(Other(STEPS=1, EVAL=0), job_log_dir=tmp_path / "job", **QUIET)


@nightly(
    "tests/faults/test_experiment_restarts.py::test_an_experiment_with_a_killed_process_ends_with_the_same_bits_and_traces_once"
)
@pytest.mark.slow
def test_a_job_that_is_killed_again_and_again_ends_with_the_same_bits(tiny: ModuleType, tmp_path: Path) -> None:
    root = frozen(tmp_path / "frozen")
    script = root / Path(__file__).with_name("tiny.py").relative_to(ROOT)
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}

    command = [sys.executable, str(script), str(tmp_path / "killed"), str(tmp_path / "killed.seen")]
    assert run(tiny.Tiny(STEPS=40), job_log_dir=str(tmp_path / "whole"), **QUIET) == 0
    dice, kills = random.Random(3), 0
    for _ in range(40):
        process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        folder = tmp_path / "killed" / "checkpoints"
        known = len(list(folder.glob("checkpoint_*"))) if kills < KILLS else 10**9
        while process.poll() is None and len(list(folder.glob("checkpoint_*"))) <= known:
            time.sleep(0.01)
        time.sleep(dice.random() * 0.2)
        if process.poll() is not None or kills >= KILLS:
            assert process.wait() == 0
            break
        process.kill()
        process.wait()
        kills += 1
    assert kills >= 2
    assert same(tiny.state_of(str(tmp_path / "whole"), 40), tiny.state_of(str(tmp_path / "killed"), 40))
    seen = [int(line) for line in (tmp_path / "killed.seen").read_text().split()]
    last_time = {number: index for index, number in enumerate(seen)}
    assert sorted(last_time) == list(range(len(last_time)))
    assert [number for number, _ in sorted(last_time.items(), key=lambda item: item[1])] == sorted(last_time)


def test_damaged_files_beside_the_checkpoints_do_not_stop_a_job(tiny: ModuleType, job: str, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    shutil.copytree(job, folder)
    for step in (6, 8):
        shutil.rmtree(folder / "checkpoints" / f"checkpoint_{step:08d}")
    for name in ("status.json", "train.log.tsv", "valid.log.tsv", "eval_out/text/eval_out_8_metrics.json"):
        with (folder / name).open("ab") as file:
            file.write(b"\xff")
    for name in ("log.txt", "run.json", "model_params.txt"):
        (folder / name).unlink()
        (folder / name).mkdir()
    shutil.rmtree(folder / "summaries")
    (folder / "summaries").write_text("a file where a folder was")
    assert run(tiny.Tiny, job_log_dir=str(folder), eval_on_test=True, plots=False, device="cpu:1G:16GiB") == 0
    aside = {path.name for path in folder.rglob("*.damaged-1")}
    assert {"status.json.damaged-1", "train.log.tsv.damaged-1", "valid.log.tsv.damaged-1", "log.txt.damaged-1"} <= aside
    assert {"run.json.damaged-1", "model_params.txt.damaged-1", "summaries.damaged-1"} <= aside
    assert steps_in(str(folder))[-1] == 8
    assert (
        read_table(str(folder / "train.log.tsv"))["step"].tolist()
        == read_table(f"{job}/train.log.tsv")["step"].tolist()
    )


def test_a_job_whose_checkpoints_are_all_damaged_does_not_begin_anew_in_their_place(
    tiny: ModuleType, job: str, tmp_path: Path
) -> None:
    folder = tmp_path / "job"
    shutil.copytree(job, folder)
    for metadata in folder.glob("checkpoints/*/metadata"):
        metadata.write_text("{}")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(NoCheckpoint, match=r"steps \[0, 3, 6, 8\] is intact.*Move them away"):
        run(tiny.Tiny, job_log_dir=folder, **QUIET)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_an_upload_of_the_first_checkpoint_that_was_cut_off_does_not_stop_a_job(tmp_path: Path) -> None:
    parent = f"memory://jobs/{uuid.uuid4().hex}/checkpoints"
    for place in (parent, str(tmp_path)):
        with io.open(f"{place}/checkpoint_00000000/metadata", "w") as file:
            file.write("{}")
    assert spmd_folders.steps(parent) == [0]
    assert (spmd_folders.written(parent), spmd_folders.written(tmp_path)) == ([], [0])
