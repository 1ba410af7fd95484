from __future__ import annotations

import json
import shutil
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from xdpx.config.faults import ConfigError
from xdpx.experiments.running import run
from xdpx.models.spmd.language_model import LanguageModel
from xdpx.utils.nested_map import NestedMap

QUIET: dict[str, Any] = {"plots": False, "enable_summary_writer": False}


@pytest.fixture(scope="module")
def copied(job: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The job, without what was evaluated and decoded."""
    folder = tmp_path_factory.mktemp("copied") / "job"
    shutil.copytree(job, folder)
    shutil.rmtree(folder / "eval_out")
    shutil.rmtree(folder / "decoder_out")
    return str(folder)


def written(folder: str, kind: str) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in Path(folder, kind).rglob("*.json*")}


def test_each_checkpoint_is_evaluated_once(tiny: ModuleType, job: str, copied: str) -> None:
    assert run(tiny.Tiny, job_log_dir=copied, mode="eval", **QUIET) == 0
    first = written(copied, "eval_out")
    assert {name for name in first if name.endswith(".jsonl")} == {f"eval_out_{n}_shard_0.jsonl" for n in (0, 3, 6, 8)}
    for step in (8,):  # what was evaluated while training is what is evaluated after it
        name = f"eval_out/text/eval_out_{step}_metrics.json"
        assert tiny.metrics_in(copied, name) == pytest.approx(tiny.metrics_in(job, name))
    assert run(tiny.Tiny, job_log_dir=copied, mode="eval", **QUIET) == 0
    assert written(copied, "eval_out") == first
    assert Path(copied, "eval_model_params.txt").is_file()


def test_checkpoints_that_come_later_are_waited_for(
    tiny: ModuleType, copied: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "job"
    steps = ("00000003", "00000008")

    def bring() -> None:
        for step in steps:
            time.sleep(0.3)
            (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
            shutil.copytree(f"{copied}/checkpoints/checkpoint_{step}", folder / f".{step}.tmp-x")
            (folder / f".{step}.tmp-x").rename(folder / "checkpoints" / f"checkpoint_{step}")

    thread = threading.Thread(target=bring)
    thread.start()
    try:
        assert run(tiny.Tiny, job_log_dir=folder, mode="decode", poll_seconds=0.05, **QUIET) == 0
    finally:
        thread.join()
    names = {name for name in written(str(folder), "decoder_out") if name.endswith(".jsonl")}
    assert names == {"decoder_out_3_shard_0.jsonl", "decoder_out_8_shard_0.jsonl"}
    told = f"waiting for the first checkpoint of a job in {folder}, which does not exist yet: looks for it every 0.05 s"
    assert capsys.readouterr().err.count(told) == 1


@pytest.mark.parametrize("options", [{"mode": "eval"}, {"mode": "infer"}, {"mode": "decode", "restore": True}])
def test_a_folder_that_is_no_job_is_refused_instead_of_waited_for(
    tiny: ModuleType, tmp_path: Path, options: dict[str, Any]
) -> None:
    (tmp_path / "letters.txt").write_text("dear all")
    restored = {"restore_checkpoint_dir": str(tmp_path)} if options.pop("restore", False) else {}
    folder = tmp_path / "new" if restored else tmp_path
    with pytest.raises(ConfigError, match=f"'{tmp_path}' contains files that do not belong to a job"):
        run(tiny.Tiny, job_log_dir=folder, **options, **restored, **QUIET)
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


def test_one_checkpoint_is_decoded_and_evaluated(tiny: ModuleType, copied: str, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    options: dict[str, Any] = {"restore_checkpoint_dir": copied, "restore_checkpoint_step": 6, **QUIET}
    code = run(
        tiny.Tiny,
        job_log_dir=folder,
        mode="decode_once",
        eval_during_decode=True,
        decode_output_pickle=False,
        **options,
    )
    assert code == 0
    assert {path.name for path in folder.rglob("*_shard_0.*")} == {
        "decoder_out_6_shard_0.jsonl", "eval_out_6_shard_0.jsonl"
    }  # fmt: skip
    rows = [json.loads(line) for line in (folder / "decoder_out/said/decoder_out_6_shard_0.jsonl").open()]
    assert len(rows) == 4
    assert set(rows[0]) == {
        "prefix", "decoded", "original", "ids", "logprobs", "prefix_length", "decode_length", "decoded_substr",
        "decoded_ids",
    }  # fmt: skip
    assert rows[0]["decoded"] == rows[0]["prefix"] + rows[0]["decoded_substr"]
    assert len(rows[0]["decoded_substr"]) == 4


def test_predictions_are_written_as_arrays(tiny: ModuleType, copied: str, tmp_path: Path) -> None:
    class WithTable(LanguageModel):
        def compute_predictions(self, batch: Any) -> Any:
            return NestedMap(super().compute_predictions(batch), table=jnp.zeros((3, 2)), long=jnp.zeros(9))

    class Telling(tiny.Tiny):  # type: ignore[name-defined, misc]
        def task(self) -> Any:
            task = super().task()
            return task.set(model=WithTable.HParams().copy_fields_from(task.model))

    assert run(Telling, job_log_dir=tmp_path, mode="infer", restore_checkpoint_dir=copied, **QUIET) == 0
    files = sorted((tmp_path / "infer_out/said").glob("*.npz"))
    assert len(files) == 32
    arrays = [np.load(file) for file in files[:4]]
    assert {row["logits"].shape for row in arrays} == {(1, 16, 128)}
    assert {tuple(row) for row in arrays} == {("logits",)}  # what is not a row of an example is left out


def test_what_is_not_there_cannot_be_looked_at(tiny: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no checkpoint to start from"):
        run(tiny.Tiny, job_log_dir=tmp_path, mode="decode_once", **QUIET)

    class Nothing(tiny.Tiny):  # type: ignore[name-defined, misc]
        def decode_datasets(self) -> list[Any]:
            return []

    with pytest.raises(ConfigError, match="decode_datasets"):
        run(Nothing, job_log_dir=tmp_path, mode="decode_once", **QUIET)


def test_what_was_decoded_of_one_job_is_not_taken_for_that_of_another(
    tiny: ModuleType, copied: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tiny.Tiny(STEPS=1, EVAL=0), job_log_dir=tmp_path / "other", **QUIET) == 0
    for job in (copied, tmp_path / "other", tmp_path / "other"):
        options = {"mode": "decode_once", "restore_checkpoint_dir": f"{job}/checkpoints/checkpoint_00000000"}
        assert run(tiny.Tiny, job_log_dir=tmp_path / "out", **options, **QUIET) == 0
    told = capsys.readouterr().err
    assert told.count("step 0 is computed again, as ") == told.count("step 0 is already done") == 1
    assert (tmp_path / "out/decoder_out/said/earlier-1/decoder_out_0_shard_0.jsonl").is_file()


@pytest.mark.slow
def test_averaged_weights_are_evaluated_when_asked_for(tiny: ModuleType, tmp_path: Path) -> None:
    folder = str(tmp_path / "job")
    run(tiny.Tiny(STEPS=4, EMA=0.9), job_log_dir=folder, eval_on_test=True, **QUIET)
    trained = tiny.metrics_in(folder, "eval_out/text/eval_out_4_metrics.json")
    shutil.rmtree(Path(folder, "eval_out"))
    run(tiny.Tiny(STEPS=4, EMA=0.9), job_log_dir=folder, mode="eval", **QUIET)
    later = tiny.metrics_in(folder, "eval_out/text/eval_out_4_metrics.json")
    assert later == pytest.approx(trained)
    shutil.rmtree(Path(folder, "eval_out"))
    run(tiny.Tiny(STEPS=4), job_log_dir=folder, mode="eval", **QUIET)
    last = tiny.metrics_in(folder, "eval_out/text/eval_out_4_metrics.json")
    assert last["log_pplx"] != pytest.approx(trained["log_pplx"], rel=1e-4)
