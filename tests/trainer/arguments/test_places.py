from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.utils import logging as transformers_levels

from tests.processes import free_port
from tests.tiers import some
from xdpx.engines.pytorch import world
from xdpx.trainer.arguments import ParallelMode, TrainingArguments
from xdpx.trainer.arguments.places import level_of, library_level

ONE = world.World(rank=0, size=1, local_rank=0, local_size=1, node=0, device=torch.device("cpu"), mode="single")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)


def placed(arguments: TrainingArguments, **where: Any) -> TrainingArguments:
    """Return the arguments as a process elsewhere sees them."""
    vars(arguments)["_world"] = world.World(**vars(ONE) | where)
    return arguments


def test_one_process_on_a_cpu_is_not_parallel() -> None:
    made = TrainingArguments("x", use_cpu=True, per_device_train_batch_size=3, per_device_eval_batch_size=5)
    assert (made.device, made.n_gpu, made.world_size) == (torch.device("cpu"), 0, 1)
    assert (made.process_index, made.local_process_index) == (0, 0)
    assert made.parallel_mode is ParallelMode.NOT_PARALLEL
    assert (made.train_batch_size, made.eval_batch_size) == (3, 5)
    assert (made.should_log, made.should_save, made.place_model_on_device) == (True, True, None)


def test_several_gpus_of_one_process_multiply_the_batch() -> None:
    made = placed(TrainingArguments("x"), mode="data_parallel", num_gpus=4, device=torch.device("cuda", 0))
    assert (made.n_gpu, made.train_batch_size, made.eval_batch_size) == (4, 32, 32)
    assert made.parallel_mode is ParallelMode.NOT_DISTRIBUTED


def test_a_script_may_set_the_number_of_gpus() -> None:
    made = TrainingArguments("x", use_cpu=True)
    made._n_gpu = 2
    assert (made.n_gpu, made._n_gpu, made.train_batch_size) == (2, 2, 16)


@pytest.mark.parametrize(
    ("everywhere", "local_rank", "rank", "expected"),
    [(True, 0, 2, True), (True, 1, 3, False), (False, 0, 2, False), (False, 0, 0, True)],
)
def test_who_logs_and_who_saves_is_decided_per_node_or_once(
    everywhere: bool, local_rank: int, rank: int, expected: bool
) -> None:
    made = TrainingArguments("x", log_on_each_node=everywhere, save_on_each_node=everywhere)
    placed(made, mode="distributed", size=4, local_size=2, rank=rank, local_rank=local_rank)
    assert (made.should_log, made.should_save) == (expected, expected)


@pytest.mark.parametrize(("rank", "level"), [(0, logging.INFO), (1, logging.ERROR)])
def test_replicas_have_a_level_of_their_own(rank: int, level: int) -> None:
    made = TrainingArguments("x", log_level="info", log_level_replica="error")
    assert placed(made, mode="distributed", size=2, rank=rank, local_rank=rank).get_process_log_level() == level


def test_passive_leaves_the_level_as_the_program_has_set_it() -> None:
    before = transformers_levels.get_verbosity()
    try:
        transformers_levels.set_verbosity(logging.CRITICAL)
        assert TrainingArguments("x", use_cpu=True).get_process_log_level() == library_level() == logging.CRITICAL
        assert TrainingArguments("x").disable_tqdm is True
    finally:
        transformers_levels.set_verbosity(before)
    assert [level_of(word) for word in ("detail", "debug", "critical")] == [10, 10, 50]


def test_the_level_is_known_without_transformers_too() -> None:
    code = "from xdpx.trainer.arguments.places import library_level; print(library_level())"
    given = {"TRANSFORMERS_VERBOSITY": "error"}
    for environment, level in ((os.environ | given, "40"), (os.environ | {"TRANSFORMERS_VERBOSITY": ""}, "30")):
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == level


def test_the_time_that_processes_wait_is_given_in_seconds() -> None:
    assert TrainingArguments("x", ddp_timeout=60).ddp_timeout_delta == timedelta(minutes=1)


def test_accelerates_view_shows_the_same_process() -> None:
    state = TrainingArguments("x", use_cpu=True).distributed_state
    assert (state.is_main_process, state.num_processes, state.device.type) == (True, 1, "cpu")


def test_a_single_process_does_not_wait_for_itself() -> None:
    with TrainingArguments("x", use_cpu=True).main_process_first(desc="tokenising"):
        pass


SCRIPT = """
import json, sys, time
from pathlib import Path
from xdpx.trainer.arguments import HfArgumentParser, TrainingArguments

(made,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
import torch.distributed as dist
assert not dist.is_initialized(), "parsing connects nothing"
folder = Path(made.output_dir)
with made.main_process_first(desc="cache"):
    seen = (folder / "cache").exists()
    if made.process_index == 0:
        time.sleep(0.3)
        (folder / "cache").touch()
told = {
    "seen": seen, "rank": made.process_index, "size": made.world_size, "mode": made.parallel_mode.value,
    "level": made.get_process_log_level(), "log": made.should_log, "save": made.should_save,
    "local_rank": made.local_rank, "state": made.distributed_state.num_processes,
}
(folder / f"told-{made.process_index}.json").write_text(json.dumps(told))
"""


@pytest.mark.parametrize(
    "launcher", some(["torch.distributed.run", "torch.distributed.launch"], ["torch.distributed.launch"])
)
def test_two_processes_know_their_places_and_the_first_goes_first(launcher: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [
        sys.executable, "-m", launcher, "--nproc_per_node=2", f"--master_port={free_port()}", str(script),
        "--output_dir", str(tmp_path), "--use_cpu", "--log_level", "info", "--log_level_replica", "error",
    ]  # fmt: skip
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.getcwd()}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    first, second = (json.loads((tmp_path / f"told-{rank}.json").read_text()) for rank in (0, 1))
    given = -1 if launcher == "torch.distributed.run" else 0
    assert first == {
        "seen": False, "rank": 0, "size": 2, "mode": "distributed", "level": 20, "log": True, "save": True,
        "local_rank": given, "state": 2,
    }  # fmt: skip
    assert second["seen"] is True
    assert (second["rank"], second["level"], second["log"], second["save"]) == (1, 40, False, False)
