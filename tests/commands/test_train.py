"""x-train as a user starts it, on data that takes a second."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests import tiers
from xdpx import run as door
from xdpx.checkpoints.trusted import load_tensors
from xdpx.datasets import register_sampler
from xdpx.datasets.plan import Sampler
from xdpx.engines.pytorch.engine import PyTorchEngine
from xdpx.losses import register as register_loss
from xdpx.losses.cross_entropy import CrossEntropy
from xdpx.models import register
from xdpx.models.pytorch.convolutional import ClsCnn
from xdpx.training.status import read_status
from xdpx.utils.commit import Lease

BASE: dict[str, Any] = {
    "model": "cls_cnn", "loss": "cross_entropy", "embedding_dim": 8, "hidden_size": 8, "max_update": 12,
    "batch_size": 16, "learning_rate": 0.01, "eval_interval": 6, "major_metric": "acc", "log_interval": 3,
}  # fmt: skip


Start = Callable[..., int]


@pytest.fixture
def start(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Start x-train with the given keys in `tmp_path`; gives its exit code."""
    monkeypatch.chdir(tmp_path)

    def train(save_dir: str = "run", **keys: Any) -> int:
        return door.main(["x-train", str(write(data, save_dir, keys))])

    return train


def write(data: Path, save_dir: str, keys: dict[str, Any]) -> Path:
    values = {"__parent__": f"{data}/meta", "data_dir": str(data), "save_dir": save_dir, **BASE, **keys}
    Path("train.json").write_text(json.dumps({key: value for key, value in values.items() if value != "absent"}))
    return Path("train.json")


def names(folder: str = "run") -> set[str]:
    return {path.name for path in Path(folder).iterdir()}


def test_a_run_leaves_every_promised_file(start: Start) -> None:
    assert start() == 0
    promised = {"args.py", "starter_config.hjson", "log.txt", "train.log.tsv", "valid.log.tsv", "snapshot.zip"}
    promised |= {"vocab.txt", "target_map.txt", "status.json", "checkpoint-6.pt", "checkpoint-12.pt"}
    assert promised <= names()
    status = read_status("run")
    assert status is not None
    assert (status.status, status.step) == ("finished", 12)


def test_gradients_are_drawn_when_asked_for(start: Start, reading_threads: Any) -> None:
    assert start(inspect_gradient=True, figext="svg") == 0
    assert not reading_threads()  # whatever tracebacks the drawing leaves
    pictures = sorted(path.name for path in Path("run/plots/gradients").iterdir())
    assert pictures == ["12.svg", "6.svg", "history.svg", "history.tsv"]


def test_the_starter_config_trains_the_very_same_model(start: Start) -> None:
    start(save_last_only=True)
    starter = Path("run/starter_config.hjson").read_text().replace('"run"', '"again"')
    Path("again.hjson").write_text(starter)
    assert door.main(["x-train", "again.hjson"]) == 0
    assert Path("run/checkpoint-12.pt").read_bytes() == Path("again/checkpoint-12.pt").read_bytes()


def test_rows_of_json_train_the_very_same_model(start: Start, data: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    assert door.main(["x-prepro", str(data.parent / "prepro.json"), f"data_dir={rows}", "save_format=jsonl"]) == 0
    assert start() == 0
    assert start(__parent__=str(rows / "meta"), data_dir=str(rows), save_dir="from_rows") == 0
    assert Path("from_rows/checkpoint-12.pt").read_bytes() == Path("run/checkpoint-12.pt").read_bytes()


def test_a_sampler_of_ones_own_decides_the_order(start: Start) -> None:
    @register_sampler("in_file_order")
    class InFileOrder(Sampler):
        """Groups of consecutive samples."""

        def plan(self, samples: Any, **options: int) -> Any:
            """Return the rows of each group as they lie in the file."""
            size = options["batch_size"]
            groups = [[np.arange(start, start + size)] for start in range(0, samples - size + 1, size)]
            return SimpleNamespace(num_groups=len(groups), group=groups.__getitem__)

    assert start(sampler="in_file_order") == 0
    assert start(save_dir="shuffled") == 0
    assert Path("shuffled/checkpoint-12.pt").read_bytes() != Path("run/checkpoint-12.pt").read_bytes()


def test_a_network_of_ones_own_whose_scores_depend_on_chance_is_told(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    class Plain(ClsCnn):
        """Draws numbers in evaluation, but does not use them."""

        def forward(self, tokens: Any, mask: Any) -> Any:
            torch.rand(())
            return super().forward(tokens, mask)

    class Chancy(Plain):
        """Keeps dropout on in evaluation."""

        def forward(self, tokens: Any, mask: Any) -> Any:
            return torch.nn.functional.dropout(super().forward(tokens, mask), 0.3)

    for name, kind in (("draws_in_vain", Plain), ("chancy", Chancy)):
        register(name)(kind)
        assert start(model=name, save_dir=name, max_update=2, eval_interval=1) == 0
        told = capsys.readouterr().err
        assert told.count("Chancy: gives another answer when the same batch is computed again") == (name == "chancy")


def test_a_metric_of_ones_own_that_may_be_better_if_lower_is_told(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    class Priced(CrossEntropy):
        """Gives a metric whose direction its name does not tell."""

        metric_names = {"cost": None}

        def metrics(self, gathered: Any) -> dict[str, float]:
            """Return the loss under another name."""
            return {"cost": super().metrics(gathered)["loss"]}

    register_loss("priced")(Priced)
    for keys in ({}, {"ascending_metric": False}):
        assert start(loss="priced", major_metric="cost", save_dir=f"run{len(keys)}", **keys) == 0
        told = capsys.readouterr().err
        assert ("ascending_metric is not set, so the step with the highest cost counts as the best" in told) is (
            not keys
        )


@pytest.mark.parametrize(("interval", "effect"), [(5, "first evaluation without"), (-1, "it never ends"), (3, None)])
def test_a_tolerance_that_seems_to_count_evaluations_is_told(
    start: Start, capsys: pytest.CaptureFixture[str], interval: int, effect: str | None
) -> None:
    assert start(max_update=5, eval_interval=interval, tolerance=3) == 0
    told = capsys.readouterr().err
    assert (f"tolerance: 3 counts updates, and eval_interval is {interval}: " in told) is (effect is not None)
    assert (effect or "") in told


def test_an_existing_run_is_refused_and_left_as_it_was(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    start()
    before = {path.name: path.stat().st_mtime_ns for path in Path("run").iterdir()}
    assert start() == 2
    assert "resume: auto, overwrite: true, auto_suffix: true" in capsys.readouterr().err
    assert {path.name: path.stat().st_mtime_ns for path in Path("run").iterdir()} == before


def test_overwrite_replaces_a_run_but_not_the_notes_in_it(start: Start) -> None:
    start(max_update=12)
    Path("run/notes.md").write_text("mine")
    assert start(max_update=7, overwrite=True) == 0
    assert "checkpoint-12.pt" not in names()
    assert Path("run/notes.md").read_text() == "mine"


@pytest.mark.parametrize("mistake", [{"model": "cls_cmm"}, {"batch_size": 5000}, {"major_metric": "a"}])
def test_a_mistake_deletes_nothing_of_the_run_to_be_overwritten(start: Start, mistake: dict[str, Any]) -> None:
    start()
    before = names()
    assert start(overwrite=True, **mistake) == 2
    assert names() == before


@pytest.mark.parametrize("keys", [{"overwrite": True}, {"resume": "auto"}, {"resume": True}])
def test_a_folder_that_is_no_run_is_never_touched(start: Start, data: Path, keys: dict[str, Any]) -> None:
    Path("photos").mkdir()
    Path("photos/cat.jpg").write_text("cat")
    assert start("photos", **keys) == 2
    assert names("photos") == {"cat.jpg"}
    before = names(str(data))
    assert start(str(data), **keys) == 2
    assert names(str(data)) == before


def test_auto_suffix_takes_the_next_free_name(start: Start) -> None:
    assert [start(auto_suffix=True) for _ in range(3)] == [0, 0, 0]
    assert Path("run-2/checkpoint-12.pt").read_bytes() == Path("run/checkpoint-12.pt").read_bytes()
    assert "'save_dir*': 'run-2'" in Path("run-2/args.py").read_text()


def test_resume_without_a_state_says_how_to_have_one(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    start()
    assert start(resume=True) == 1
    assert "save_full_checkpoint: true" in capsys.readouterr().err
    assert start("nowhere", resume=True) == 2


def test_resume_auto_never_begins_anew_over_foreign_checkpoints(start: Start) -> None:
    start()
    before = names()
    assert start(resume="auto", learning_rate=0.02) == 1
    assert names() == before


def test_the_same_command_again_finds_nothing_left_to_do(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    start(resume="auto")
    before = Path("run/log.txt").read_text()
    assert start(resume="auto") == 0
    assert "already finished at step 12" in capsys.readouterr().err
    assert Path("run/log.txt").read_text() == before


def test_two_stages_are_one_training(start: Start) -> None:
    keys = {"lr_scheduler": "one_cycle", "warmup_steps": 0.2, "save_full_checkpoint": True}
    start("whole", **keys)
    start("staged", train_steps=5, **keys)
    assert read_status("staged").step == 5  # type: ignore[union-attr]
    assert start("staged", resume=True, train_steps=0.25, **keys) == 0
    assert read_status("staged").step == 8  # type: ignore[union-attr]
    assert start("staged", resume=True, **keys) == 0
    assert Path("staged/checkpoint-12.pt").read_bytes() == Path("whole/checkpoint-12.pt").read_bytes()


def test_a_changed_parameter_is_told_and_written_down(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    start(save_full_checkpoint=True, train_steps=6)
    assert start(save_full_checkpoint=True, resume=True, clip_norm=1.0) == 0
    assert "+- clip_norm: 5.0 -> 1.0" in capsys.readouterr().err
    assert "'clip_norm*': 1.0" in Path("run/args.resume-6.py").read_text()
    assert "clip_norm: 1.0" in Path("run/starter_config.resume-6.hjson").read_text()
    for name in ("args.resume-9.py", "starter_config.resume-9.hjson", "snapshot.resume-9.zip"):
        Path("run", name).write_bytes(Path("run/args.resume-6.py").read_bytes())
    Path("run/checkpoint-12.pts").unlink()
    assert start(save_full_checkpoint=True, resume=True) == 0
    assert "'clip_norm': 5.0" in Path("run/args.resume-6.py").read_text()
    assert not [name for name in names() if "resume-9" in name]


def test_an_unchanged_resume_writes_no_second_args(start: Start) -> None:
    start(save_full_checkpoint=True, train_steps=6)
    start(save_full_checkpoint=True, resume=True)
    assert not [name for name in names() if name.startswith("args.resume")]


def test_a_damaged_newest_state_is_named_and_the_one_before_gives_the_same_end(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = {"resume": "auto", "save_interval": 4}
    start("whole", **keys)
    start("cut", train_steps=8, **keys)
    state = Path("cut/checkpoint-8.pts")
    state.write_bytes(state.read_bytes()[:-100])
    assert start("cut", **keys) == 0
    assert "checkpoint-8.pts is not used" in capsys.readouterr().err
    assert "continuing at step 6" in Path("cut/log.txt").read_text()
    assert Path("cut/checkpoint-12.pt").read_bytes() == Path("whole/checkpoint-12.pt").read_bytes()


def test_another_seed_within_an_epoch_is_told_and_at_its_end_is_not(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    for steps, told in ((3, True), (4, False)):  # of an epoch of 4
        keys = {"resume": "auto", "save_dir": f"stopped-{steps}", "batch_size": 50}
        start(train_steps=steps, seed=1, **keys)
        capsys.readouterr()
        assert start(seed=2, **keys) == 0
        warned = "seed: was 1, and is 2. Epoch 1 has begun, and its rest comes in another order now"
        assert (warned in capsys.readouterr().err) == told


def test_a_second_run_in_the_same_folder_is_refused(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    Path("run").mkdir()
    with Lease("run"):
        assert start() == 1
    assert "another run is using this folder" in capsys.readouterr().err


def test_a_training_that_diverges_says_so_and_saves_nothing_of_it(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start(learning_rate=1e30, optimizer="adam", clip_norm=0.0) == 1
    error = capsys.readouterr().err
    assert "training diverged" in error
    assert "Traceback" not in error
    assert not [name for name in names() if name.endswith((".pt", ".pts"))]
    assert read_status("run").status == "failed"  # type: ignore[union-attr]


def test_a_seed_of_zero_is_a_seed(start: Start) -> None:
    assert start(seed=0) == 0
    assert start(seed=0, save_dir="again") == 0
    assert Path("run/checkpoint-12.pt").read_bytes() == Path("again/checkpoint-12.pt").read_bytes()


def test_a_seed_of_null_draws_one_and_keeps_it_over_a_resume(start: Start) -> None:
    keys = {"seed": None, "resume": "auto"}
    start(train_steps=6, **keys)
    start(**keys)
    seeds = [line.split("seed ")[1] for line in Path("run/log.txt").read_text().splitlines() if "seed " in line]
    assert len(seeds) == 2
    assert seeds[0] == seeds[1]


def test_a_split_that_is_trained_on_and_scored_is_warned_about(start: Start) -> None:
    for choice, warned in (("*", True), ("train", False)):
        assert start(max_update=1, train_subset=choice, save_dir=f"of_{warned}") == 0
        assert ("'dev' is trained on too" in Path(f"of_{warned}/log.txt").read_text()) is warned


@pytest.mark.parametrize(("keys", "told"), [
    ({"max_update": "absent"}, "Set max_epoch or max_update"),
    ({"resume": True, "overwrite": True}, "contradicts overwrite"),
    ({"eval_interval": 0}, "is 0"),
    ({"eval_interval": -1, "eval_interval_warmup": 5}, "has no effect with eval_interval: -1"),
    ({"valid_subset": "dve"}, "Did you mean 'dev'?"),
    ({"train_subset": "test*"}, "train_subset"),
    ({"batch_size": 200}, "batch_size"),
    ({"min_steps": 13}, "min_steps"),
    ({"lr_scheduler": "warmup_stable_decay", "warmup_steps": 2, "num_decay_steps": 11}, "there are 10 updates"),
    ({"use_bmuf": True, "ema_decay": 0.9}, "contradicts use_bmuf"),
    ({"use_bmuf": True, "nproc": 2, "max_eval_steps": 1}, "has fewer batches than there are processes (2"),
    ({"nproc": 200}, "some of 200 processes get no samples"),
    ({"nproc": 2, "distributed_world_size": 3}, "contradicts distributed_world_size 3"),
    ({"nproc": 2, "loss": "circle"}, "compares the rows of a batch"),
    ({"nproc": 2, "optimizer": "sparse_adam"}, "cannot sum"),
    ({"nproc": 2, "device_id": 1}, "CUDA_VISIBLE_DEVICES"),
    ({"distributed_rank": 1}, "where rank 0 is"),
    ({"local_rank": 1}, "Use device_id to choose a GPU"),
    ({"distributed_init_method": "env://"}, "RANK, WORLD_SIZE and MASTER_ADDR are not set"),
    ({"distributed_init_method": "tcp://here", "distributed_world_size": 2}, "tcp://<host of rank 0>:<port>"),
    ({"deepspeed_zero_stage": 2}, "strategy"),
    ({"strategy": "deepspeed", "deepspeed_zero_stage": 4}, "<= 3"),
    ({"strategy": "deepspeed", "deepspeed_fp16": True, "bf16": True}, "contradicts deepspeed_fp16"),
    ({"strategy": "fsdp", "use_bmuf": True}, "contradicts use_bmuf"),
    ({"strategy": "fsdp", "nproc": 2, "auto_ga": True}, "cannot split its share"),
    ({"strategy": "fsdp", "nproc": 2, "inspect_gradient": True}, "no process has the full gradients"),
    ({"strategy": "fsdp", "nproc": 2, "task": "freelb"}, "reads weights outside of passes"),
    ({"strategy": "fsdp", "nproc": 2, "optimizer": "sparse_adam"}, "may treat a shard"),
    ({"strategy": "fsdp", "engine": "spmd"}, "which the engine spmd does not support"),
    ({"fp16_scale_tolerance": 0.1}, "is switched off with fp16_backend"),
    ({"fp16": True, "fp16_backend": "apex", "fp16_init_scale": 64}, "Set fp16_backend to 'fairseq'"),
    ({"fp16": True, "cuda": False}, "Use bf16"),
    ({"save": False, "resume": "auto"}, "nothing to continue from"),
    ({"save": False, "save_best_only": True}, "save_best_only"),
    ({"train_steps": 1.5}, "train_steps"),
    ({"figext": "pgn"}, "Did you mean 'png'?"),
    ({"major_metric": "accc"}, "Did you mean 'acc'?"),
    ({"optimizer": "adm"}, "Did you mean 'adam'?"),
    ({"model": "absent"}, "model"),
])  # fmt: skip
def test_what_cannot_be_done_is_refused_in_words(
    start: Start, capsys: pytest.CaptureFixture[str], keys: dict[str, Any], told: str
) -> None:
    assert start(**keys) == 2
    error = capsys.readouterr().err
    assert told in error
    assert "Traceback" not in error


@pytest.mark.parametrize("number", tiers.some([signal.SIGTERM, signal.SIGINT], [signal.SIGTERM]))
def test_a_signal_saves_a_state_and_exits_85_and_the_same_command_goes_on(
    start: Start, data: Path, number: signal.Signals
) -> None:
    keys = {"resume": "auto", "max_update": 3000, "eval_interval": -1}
    config = write(data, "run", keys)
    process = subprocess.Popen([sys.executable, door.__file__, "x-train", str(config)], stderr=subprocess.DEVNULL)
    while not Path("run/train.log.tsv").exists():
        time.sleep(0.05)
        assert process.poll() is None
    process.send_signal(number)
    assert process.wait(300) == 85
    status = read_status("run")
    assert status is not None
    assert status.status == "preempted"
    assert f"checkpoint-{status.step}.pts" in names()
    assert start(**{**keys, "max_update": status.step + 3}) == 0


def signal_at(monkeypatch: pytest.MonkeyPatch, engine: Any) -> list[int]:
    """Return a list: at the batch to score whose number comes first in it, counted from 1, the run gets SIGTERM."""
    score, at = engine.score, [0]

    def counted(self: Any, state: Any, batch: Any) -> Any:
        at[0] -= 1
        if at[0] == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return score(self, state, batch)

    monkeypatch.setattr(engine, "score", counted)
    return at


def results(folder: str) -> dict[str, Any]:
    """Return what must not depend on interruptions."""
    found: dict[str, Any] = {path.name: path.read_bytes() for path in sorted(Path(folder).glob("checkpoint-*.pt"))}
    for name in ("train.log.tsv", "valid.log.tsv"):
        rows = csv.DictReader(Path(folder, name).read_text().splitlines(), delimiter="\t")
        found[name] = [{key: row[key] for key in row if key not in {"ups", "wps", "train_wall"}} for row in rows]
    newest = load_tensors(str(max(Path(folder).glob("*.pts"), key=lambda path: int(path.stem.split("-")[1]))))
    newest["progress"].pop("train_seconds")
    adapter = newest["callbacks"].get("hooks", {})
    return found | {"progress": newest["progress"], "heard": adapter.get("callbacks")}


@pytest.mark.parametrize("number", [2, 3, 8])
def test_a_signal_ends_an_evaluation_which_comes_first_when_the_run_goes_on_to_the_same_end(
    start: Start, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    keys = {"resume": "auto", "eval_interval": 5, "tolerance": 4, "save_best_only": True, "major_metric": "loss",
            "ascending_metric": False, "lr_scheduler": "reduce_lr_on_plateau", "patience": 0}  # fmt: skip
    at = signal_at(monkeypatch, PyTorchEngine)
    assert start("whole", **keys) == 0
    at[0] = number  # the first batch is that of the trial before training; an evaluation has three
    assert start(**keys) == 85
    assert at[0] == 0
    status = read_status("run")
    assert status is not None
    assert status.status == "preempted"
    step = {2: 5, 3: 5, 8: 12}[number]
    assert status.reason == f"interrupted by SIGTERM after step {step}, in its evaluation, which will begin again"
    at[0] = 2
    assert start(**keys) == 85  # again in the same evaluation
    assert start(**keys) == 0
    assert results("run") == results("whole")


def test_a_full_disk_stops_the_run_and_keeps_what_was_saved(data: Path, start: Start, tmp_path: Path) -> None:
    config = write(data, "run", {"resume": "auto", "embedding_dim": 64, "hidden_size": 64, "save_interval": 2})
    code = f"""
import resource, sys
from xdpx.runs import training
training.draw_figures = lambda settings: None
from xdpx.training.callbacks import saving
save = saving.Saving._save_state
def limited(self, session, then):
    if session.number == 8:  # from here on no file can grow beyond 10 kB, as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
    save(self, session, then)
saving.Saving._save_state = limited
from xdpx import run
sys.exit(run.main(["x-train", {str(config)!r}]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ})
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "File too large" in done.stderr
    assert "checkpoint-6.pts" in names()
    assert not [name for name in names() if ".tmp-" in name]
    assert start(**json.loads(config.read_text())) == 0


def test_a_run_lives_on_a_store_as_it_does_on_a_disk(start: Start) -> None:
    from xdpx.utils import io

    where = "memory://trained/run"
    assert start(where, resume="auto", train_steps=6) == 0
    assert start(where, resume="auto") == 0
    start("here")
    with io.open(f"{where}/checkpoint-12.pt", "rb") as file:
        assert file.read() == Path("here/checkpoint-12.pt").read_bytes()
    with io.open(f"{where}/valid.log.tsv") as file:
        assert [line.split("\t")[1] for line in file] == ["step", "6", "12"]


def test_a_model_that_does_not_take_what_the_processor_gives_is_refused(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start(model="re2", blocks=1, encoder_layers=1) == 2
    assert "'re2' takes tokens1, mask1, tokens2, mask2, but the processor gives tokens" in capsys.readouterr().err
    assert not Path("run").exists()


def test_weights_whose_classes_are_numbered_in_another_order_are_refused(
    start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start(max_update=1, eval_interval=1) == 0
    labels = Path("run/target_map.txt")
    labels.write_text("".join(reversed(labels.read_text().splitlines(keepends=True))))
    assert start("again", pretrained_model="run/<best>") == 2
    assert "the same labels in another order" in capsys.readouterr().err


def test_noise_that_would_never_begin_is_refused(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    assert start(task="fgm", adv_begin_iter=12) == 2
    assert "adv_begin_iter" in capsys.readouterr().err


def test_a_key_of_the_config_that_changes_nothing_is_told(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    assert start(task="freelb", adv_steps=1, rand_init_mag=0.0, max_update=1, eval_interval=1) == 0
    assert "adv_steps: is 1, and rand_init_mag is 0" in capsys.readouterr().err
