"""Plans for GPUs that nobody has here: what attends, in which type, how much memory."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from xdpx.config.hparams import build
from xdpx.engines.spmd.engine import functions_of
from xdpx.engines.spmd.mesh import make_mesh
from xdpx.engines.spmd.peaks import device_named
from xdpx.engines.spmd.retracing import Retraces
from xdpx.engines.spmd.state import plan_state
from xdpx.engines.spmd.steps import jitted
from xdpx.engines.spmd.verdict import judge
from xdpx.experiments.describing import plan_text
from xdpx.experiments.planning import engine_options, imitated_devices, plan_experiment, rules_of, specs_of
from xdpx.experiments.registry import resolve
from xdpx.main import main
from xdpx.models.spmd.layers import fused_attention, token_chunks

C4 = "C4Spmd1BAdam4Replicas"
SMALL: dict[str, Any] = {
    "NUM_LAYERS": 2, "MODEL_DIMS": 256, "VOCAB_SIZE": 4096, "PERCORE_BATCH_SIZE": 8, "ICI_MESH_SHAPE": (1, 1, 1)
}  # fmt: skip


def update_for_cuda(name: str, **fields: Any) -> tuple[str, list[str]]:
    """Lower an update of an experiment for CUDA, at full size; nothing is compiled or allocated."""
    experiment = resolve(name)(**fields)
    shape = experiment.mesh_shape()
    mesh = make_mesh(shape.ici, shape.dcn, shape.names, imitated_devices(shape.num_devices))
    task, rules, spec = build(experiment.task()), rules_of(experiment), specs_of(experiment)
    options = engine_options(experiment.task().train, averaged=False)
    with fused_attention.traced_for("cuda") as attention:
        state = plan_state(task, spec, rules, mesh)
        update: Any = jitted(functions_of(task, mesh, rules, options, Retraces()), state.placed, state.everywhere)[0]
        lowered = update.trace(state.shapes, (spec,)).lower(lowering_platforms=("cuda",))
    return lowered.as_text(), attention


def arrays_of(text: str, size: int) -> set[str]:
    """Return the arrays whose dimensions are so many numbers."""
    found = set(re.findall(r"tensor<((?:\d+x)+)[a-z]\w+>", text))
    return {dims for dims in found if math.prod(int(dim) for dim in dims.split("x") if dim) == size}


@pytest.fixture
def with_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    from jax._src.cudnn import fused_attention_stablehlo as cudnn

    monkeypatch.setattr(cudnn, "check_cudnn_version", lambda: 91200)


@pytest.mark.usefixtures("with_cudnn")
@pytest.mark.parametrize(
    ("fields", "kernel", "told"),
    [
        ({}, "__gpu$xla.gpu.triton", "our fused kernel, for the logit cap 50, which cuDNN's lacks"),
        # On several devices JAX shows its call of cuDNN to the partitioner only.
        (
            {"ATTEN_LOGIT_CAP": None, "ICI_MESH_SHAPE": (1, 1, 1)},
            "__cudnn$fmha",
            "cuDNN's fused kernel, texts of a row separated by its bias",
        ),
    ],
)
def test_c4_1b_on_a_gpu_has_fused_attention_and_never_all_logits(
    fields: dict[str, Any], kernel: str, told: str
) -> None:
    text, attention = update_for_cuda(C4, **fields)
    assert attention == [told]
    calls = re.findall(r"custom_call @([\w$.]+)", text)
    assert len([call for call in calls if call.startswith(kernel)]) >= 2
    rows, tokens, words, heads = 32 if fields else 128, 1024, 32000, 20
    assert not arrays_of(text, rows * tokens * words)
    assert not arrays_of(text, rows * heads * tokens * tokens)


@pytest.mark.usefixtures("with_cudnn")
def test_a_packed_pipeline_on_gpus_is_lowered_with_fused_attention_too() -> None:
    small = {"NUM_LAYERS": 2, "MODEL_DIMS": 128, "NUM_HEADS": 2, "DIMS_PER_HEAD": 64, "VOCAB_SIZE": 50257}
    text, attention = update_for_cuda("C4SpmdPipelineGpt3SmallAdam8Replicas", **small)
    assert attention == ["our fused kernel, for masks in the stages of a pipeline, which cuDNN's lacks"]
    assert "__gpu$xla.gpu.triton" in text
    assert not arrays_of(text, 512 * 2048 * 50257)


def test_a_cpu_still_computes_what_the_recipe_says_without_kernels() -> None:
    layer = build(resolve(C4)(MODEL_DIMS=256, NUM_LAYERS=1).task().model.lm_tpl)
    shapes = jax.ShapeDtypeStruct((2, 64), jnp.int32)
    variables = jax.eval_shape(layer.init, jax.random.key(0), shapes)
    jaxpr = str(jax.make_jaxpr(layer.apply)(variables, shapes))
    assert "pallas_call" not in jaxpr
    assert "tanh" in jaxpr


def test_chunks_of_the_vocabulary_make_the_plan_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    in_chunks = plan_experiment(resolve(C4)(), compiling=False, platform="cuda")
    monkeypatch.setattr(token_chunks, "LARGE", float("inf"))
    whole = plan_experiment(resolve(C4)(), compiling=False, platform="cuda")
    logits_of_a_device = 4 * 32 * 1024 * 32000
    assert whole.memory.least - in_chunks.memory.least > logits_of_a_device
    assert in_chunks.flops.training == whole.flops.training


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([C4, *(f"--set={name}={value}" for name, value in SMALL.items()), *words]) == 0
    return capsys.readouterr().out


def test_a_plan_names_the_attention_and_writes_bf16_as_bf16(capsys: pytest.CaptureFixture[str]) -> None:
    for_gpu = json.loads(planned(capsys, "--plan", "--device=h100", "--json"))
    assert for_gpu["attention"] == ["our fused kernel, for the logit cap 50, which cuDNN's lacks"]
    shown = json.dumps([for_gpu["buffers"], for_gpu["tensors"], for_gpu["collectives"]])
    assert "bf16[" in shown
    assert not re.search(r"\bf(loat)?16\[", shown)
    plain = json.loads(planned(capsys, "--plan", "--device=h100", "--json", "--set=FPROP_DTYPE=float32"))
    assert plain["attention"][0].startswith("not fused: float32 logits; a fused kernel takes bfloat16 or float16")
    assert for_gpu["memory_per_device"]["total"] < plain["memory_per_device"]["total"]


def test_it_may_fit_is_said_only_between_bounds_that_are_near() -> None:
    experiment = resolve(C4)(**SMALL)
    plan = plan_experiment(experiment)
    assert plan.memory.total > 1.3 * plan.memory.least
    between = device_named(f"own:1T:{int((plan.memory.total + plan.memory.least) / 2 / 0.95)}")
    told = plan_text(C4, experiment, plan, judge(plan, between))
    assert "unknown whether it fits: " in told
    assert "may fit" not in told
