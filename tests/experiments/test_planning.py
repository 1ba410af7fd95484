"""Experiments planned: small ones quickly, those of the document at full size in processes of their own."""

import json
import math
import os
import re
import subprocess
import sys

import pytest

from tests.tiers import nightly, some
from xdpx.config.faults import ConfigError
from xdpx.engines.spmd.mesh import make_mesh
from xdpx.engines.spmd.peaks import device_named
from xdpx.experiments.base_experiment import BaseExperiment
from xdpx.experiments.describing import facts_of
from xdpx.experiments.planning import efficiency_of, plan_experiment, rules_of
from xdpx.experiments.registry import resolve
from xdpx.main import main

TINY = {
    "NUM_LAYERS": 2, "MODEL_DIMS": 32, "DIMS_PER_HEAD": 8, "VOCAB_SIZE": 64, "MAX_SEQ_LEN": 16, "PERCORE_BATCH_SIZE": 2,
}  # fmt: skip

FULL = {
    # name: devices, parameters in billions, axes that talk
    "C4Spmd1BAdam4Replicas": (4, 1.10, {"data"}),
    "C4Spmd16BAdam32Replicas": (32, 16.51, {"data", "mdl"}),
    "C4Spmd22BAdam2xv4_128": (128, 21.95, {"data", "replica"}),
    "C4SpmdPipelineGpt3SmallAdam8Replicas": (8, 2.93, {"data", "mdl", "stage"}),
    "C4SpmdPipelineGpt3SmallAdam64Replicas": (64, 2.93, {"data", "mdl", "stage"}),
}
"""The largest mesh and a pipeline stand for all: between them every axis talks. The other pipeline compiles longest."""


@pytest.fixture(scope="module")
def small():
    return plan_experiment(resolve("C4Spmd1BAdam4Replicas")(**TINY, ICI_MESH_SHAPE=(1, 4, 2)))


def test_a_plan_has_parameters_memory_flops_and_collectives(small) -> None:
    assert small.num_devices == 8
    assert small.rows == 16
    assert small.tokens == 16 * 16
    assert small.memory.optimizer == pytest.approx(2 * small.memory.parameters, abs=16)
    assert {axis for one in small.collectives for axis in one.axes} == {"data", "mdl"}


def test_bfloat16_is_planned_as_large_as_it_is(small) -> None:
    assert all(not one.shape.startswith("f16") for one in small.buffers)
    assert any(one.arrays.startswith("bf16") for one in small.collectives)
    halves = [one for one in small.buffers if one.shape.startswith("bf16")]
    assert halves
    assert all(one.bytes == 2 * math.prod(map(int, re.findall(r"\d+", one.shape)[1:])) for one in halves)


def test_more_devices_than_jax_runs_with_are_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigError, match="JAX_NUM_CPU_DEVICES=64"):
        plan_experiment(resolve("C4Spmd22BAdam1xv4_128")())


def test_minus_one_fills_up_to_the_devices_that_are_said() -> None:
    one = resolve("LmCloudTransformerAdamTest")(**TINY)
    plan = plan_experiment(one, num_devices=2, compiling=False)
    assert (plan.num_devices, plan.rows, dict(plan.mesh)["replica"]) == (2, 4, 2)


class Accumulating(resolve("C4Spmd1BAdam4Replicas")):
    """Takes three batches in one update, and says how products are computed."""

    PRECISION: str | None = None

    def task(self):
        task = super().task()
        task.train.set(accumulate_batches=3, matmul_precision=self.PRECISION)
        return task


def test_a_plan_is_of_the_update_that_the_task_asks_for(small) -> None:
    one = Accumulating(**TINY, ICI_MESH_SHAPE=(1, 4, 2))
    plan = plan_experiment(one, compiling=False)
    assert plan.tokens == 3 * facts_of(one)["tokens per batch"] == 3 * small.tokens
    assert plan.flops.training == 3 * small.flops.training
    assert plan.memory.batch == 3 * small.memory.batch
    found = efficiency_of(one, make_mesh((1, 4, 2)), device=device_named("cpu:1G:1GiB"))
    assert (found.flops_per_step, found.tokens_per_step) == (plan.flops.training, plan.tokens)
    with pytest.raises(ValueError, match="guessed"):
        plan_experiment(Accumulating(**TINY, ICI_MESH_SHAPE=(1, 4, 2), PRECISION="guessed"))


def test_efficiency_of_an_experiment_is_that_of_its_plan(small) -> None:
    one = resolve("C4Spmd1BAdam4Replicas")(**TINY, ICI_MESH_SHAPE=(1, 4, 2))
    mesh = make_mesh((1, 4, 2))
    found = efficiency_of(one, mesh, device=device_named("cpu:1G:1GiB"))
    assert found.flops_per_step == small.flops.training
    assert found.tokens_per_step == small.tokens
    assert found.mfu(1.0) == pytest.approx(small.flops.training / 8e9)


def door(*words: str) -> str:
    line = [sys.executable, "-m", "xdpx.main", *words]
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=_environment())
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("JAX_NUM_CPU")}


def test_dry_prints_the_fiddle_config_and_the_cost_and_compiles_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    sets = [word for name, value in TINY.items() for word in ("--set", f"{name}={value}")]
    assert main(["C4Spmd1BAdam4Replicas", "--dry", "--device=v4", *sets]) == 0
    text = capsys.readouterr().out
    assert re.search(r"model\.lm_tpl\.vocab_size: int = 64", text)
    assert "model FLOPs per update" in text
    assert "collectives              not known without compiling: --plan" in text
    assert "it fits" in text


@nightly("test_the_documents_experiments_compile_at_full_size_on_their_mesh")
def test_a_plan_as_json_is_one_object() -> None:
    sets = [word for name, value in TINY.items() for word in ("--set", f"{name}={value}")]
    data = json.loads(door("C4Spmd1BAdam4Replicas", "--plan", "--device=v4", "--json", *sets))
    assert data["devices"] == 4
    assert data["verdict"]["fits"] is True
    assert {one["kind"] for one in data["collectives"]} >= {"all-gather"}


@pytest.mark.slow
@pytest.mark.parametrize("name", some(FULL, ["C4Spmd22BAdam2xv4_128"]))
def test_the_documents_experiments_compile_at_full_size_on_their_mesh(name: str) -> None:
    devices, billions, axes = FULL[name]
    data = json.loads(door(name, "--plan", "--device=v4", "--json"))
    assert data["devices"] == devices
    assert {"device", "fits", "room", "blame"} <= data["verdict"].keys()
    assert round(data["parameters"] / 1e9, 2) == billions
    assert {axis for one in data["collectives"] for axis in one["axes"]} == axes
    ideal = 12 * data["parameters"] / split(data)  # float32 weights and both moments of Adam, split over all axes
    most = 1.5 if "stage" in data["mesh"] else 1.02  # tables are outside of stages
    assert ideal <= data["memory_per_device"]["state"] <= most * ideal


def split(data: dict) -> int:
    """Over how many devices the weights are split: all axes but replica."""
    parts = 1
    for axis, size in data["mesh"].items():
        parts *= 1 if axis == "replica" else size
    return parts


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ({"batch": "data"}, r"Ruled.rules: gave \{'batch': 'data'\}. Return pairs"),
        ((("batch", 1),), "Return pairs"),
        ((("embed", "data"),), "has no rule for 'batch', the rows"),
    ],
)
def test_rules_that_are_no_rules_are_refused(rules: object, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        rules_of(ruled(rules))


def test_a_rule_with_an_axis_that_no_mesh_has_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    rules = (("batch", ("replica", "data")), ("mlp", "mld"), ("layers", "stage"))
    assert rules_of(ruled(rules)) == rules
    told = capsys.readouterr().err
    assert "the mesh has no axis 'mld', so that does not split mlp. Did you mean 'mdl'?" in told
    assert "stage" not in told.partition("It has")[0]


def ruled(given: object) -> BaseExperiment:
    class Ruled(BaseExperiment):
        def rules(self) -> object:
            return given

    return Ruled()
