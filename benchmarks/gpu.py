"""GPU benchmarks that take at most ten minutes; without a GPU, they run on the CPU in small.

Each part trains in separate processes, one at a time, so that each has the device to itself. This process imports
neither torch nor JAX, which would keep device memory. For the same reason XLA_PYTHON_CLIENT_PREALLOCATE is not needed:
what JAX reserves is freed with its process, and peak usage is compared, not reserved memory.
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.report import Row, spread
from benchmarks.work import WORK, PeerFailed, peer, write_config
from xdpx.engines.spmd.peaks import Efficiency, device_of_kind

Spec = dict[str, int]
Told = dict[str, Any]
"""The report of a process: the JSON on its last line."""
Pair = tuple[Told, Told]
"""The reports of ours and the other process in one round."""
ROUNDS = 3
FULL: dict[str, Spec] = {
    "fp16": {"layers": 4, "dims": 256, "heads": 4, "length": 64, "rows": 16, "updates": 10, "planted": 4},
    "strategies": {"layers": 4, "dims": 256, "heads": 4, "length": 64, "rows": 16, "updates": 20},
    "bert": {"layers": 12, "dims": 768, "heads": 12, "length": 128, "rows": 32, "updates": 120, "warm_up": 20},
    # C4Spmd1BAdam4Replicas: as wide and as deep, but with rows that fit on one device.
    "decoder": {
        "layers": 13, "dims": 2560, "heads": 20, "vocab": 32128, "length": 2048, "rows": 8, "updates": 35, "warm_up": 5,
    },
}  # fmt: skip
TINY: Spec = {"layers": 2, "dims": 32, "heads": 2, "length": 16, "rows": 4, "updates": 8}
SMALL: dict[str, Spec] = {
    "fp16": TINY | {"planted": 3},
    "strategies": TINY,
    "bert": TINY | {"warm_up": 4},
    "decoder": TINY | {"vocab": 128, "warm_up": 4},
}
ONE_GPU = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]}
"""The first available GPU; with several visible, the Trainers would use all of them."""


@dataclass(frozen=True)
class Stage:
    """One part of the benchmark: its device, its size, and its deadline.

    Attributes:
        gpu: name of the device; None for the CPU, where everything is small and speeds are meaningless.
        deadline: `time.monotonic` at which its processes are stopped; not applied on the CPU, which others may be
            using.
    """

    gpu: str | None
    deadline: float

    def run(self, script: str, name: str, spec: Spec) -> Told:
        """Run one process of the part, on a single device, and return its report."""
        path = write_config(f"gpu_{script.removesuffix('.py')}", spec | {"gpu": self.gpu is not None})
        left = max(self.deadline - time.monotonic(), 0) if self.gpu else None
        return peer(script, name, path, seconds=left, environment=self.environment)

    @property
    def environment(self) -> dict[str, str]:
        """The extra environment variables of its processes."""
        if self.gpu is None:
            return {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
        return ONE_GPU | {
            "GLOO_SOCKET_IFNAME": "lo",  # gloo is used besides nccl, and the machine may have no network
            "JAX_COMPILATION_CACHE_DIR": str(WORK / "compiled"),  # so that only the first round compiles
        }

    def in_turn(self, script: str, ours: str, other: str, spec: Spec) -> list[Pair]:
        """Run ours and the other in alternating order for as many rounds as time allows, and return their reports.

        Raises:
            PeerFailed: in the first round; in a later one, the rounds end.
        """
        pairs: list[Pair] = []
        longest = 0.0
        for number in range(ROUNDS if self.gpu else 1):
            started = time.monotonic()
            if pairs and started + longest > self.deadline:
                break
            names = [other, ours] if number % 2 else [ours, other]
            try:
                told = {name: self.run(script, name, spec) for name in names}
            except PeerFailed as failure:
                if not pairs:
                    raise
                print(failure, file=sys.stderr, flush=True)
                break
            pairs.append((told[ours], told[other]))
            longest = max(longest, time.monotonic() - started)
        return pairs

    def bounded(self, what: str, measured: str, promised: str, kept: bool) -> Row:
        """Return a row whose promise applies to GPUs only."""
        return Row(what, measured, promised, kept) if self.gpu else Row(what, measured, "none in small", True)


# ---- the parts


def fp16_overflow(stage: Stage, spec: Spec, door: str) -> Iterator[Row]:
    """Make one update overflow, and check that it is skipped and that training continues."""
    updates, number = stage.run("fp16_overflow.py", door, spec)["updates"], spec["planted"]
    planted, last, faults = updates[number], updates[-1], faults_of(updates, number)
    name = {"engine": "x-train's engine", "trainer": "our Trainer"}[door]
    what = f"fp16, {name}: update {number + 1} of {len(updates)} overflows, with a loss of {planted['loss']:.0f}"
    told = f"scale {planted['scale_before']:g} to {planted['scale']:g}, loss at last {last['loss']:.3f}"
    yield Row(what, "; ".join(faults) or told, "skipped, scale halved, goes on", not faults)


def faults_of(updates: Sequence[Told], planted: int) -> list[str]:
    """Return how fp16 misbehaved; earlier updates may overflow, too, while the loss scale is being found."""
    faults = [] if updates[planted]["skipped"] else [f"update {planted + 1} was not skipped"]
    if updates[-1]["skipped"]:
        faults.append("the last update was skipped")
    for number, update in enumerate(updates, start=1):
        if update["moved"] == update["skipped"]:
            faults.append(f"update {number}: weights {'moved' if update['moved'] else 'stood'}")
        if update["scale"] != update["scale_before"] / (2 if update["skipped"] else 1):
            faults.append(f"update {number}: scale {update['scale_before']:g} to {update['scale']:g}")
        if not math.isfinite(update["loss"]):
            faults.append(f"update {number}: loss {update['loss']}")
    return faults


def strategies(stage: Stage, spec: Spec) -> Iterator[Row]:
    """Compare the losses with DDP and FSDP2, with a world of one process, with those without a strategy."""
    alone = stage.run("one_device.py", "none", spec)["losses"]
    for strategy, name in (("ddp", "DDP"), ("fsdp", "FSDP2")):
        apart = largest_difference(stage.run("one_device.py", strategy, spec)["losses"], alone)
        yield Row(f"{name} on one device beside no strategy, float32, largest difference of {len(alone)} losses",
                  f"{apart:.1e}", "<= 1e-5", apart <= 1e-5)  # fmt: skip


def bert(stage: Stage, spec: Spec) -> Iterator[Row]:
    """Fine-tune a BERT (base size on a GPU) in bf16 with both Trainers and the same flags."""
    pairs = stage.in_turn("trainer_bert.py", "xdpx", "transformers", spec)
    apart = max(largest_difference(ours["losses"], other["losses"]) for ours, other in pairs)
    model = f"BERT of {spec['layers']} layers, {spec['dims']} wide, in bf16"
    yield Row(f"{model}, largest difference of the logged losses from the original Trainer's", f"{apart:.1e}",
              "<= 1e-2", apart <= 1e-2)  # fmt: skip
    used = [[mfu(stage.gpu, spec, told, causal=False) for told in pair] for pair in pairs]
    yield from compared(stage, model, "the original Trainer's", pairs, used, speed=1.0, memory=1.01)


def decoder(stage: Stage, spec: Spec) -> Iterator[Row]:
    """Train a decoder (a billion weights on a GPU) on JAX with our engine and with a plain script."""
    pairs = stage.in_turn("spmd_flax.py", "xdpx", "flax", spec)
    falls = all(told["losses"][-1] < told["losses"][0] for pair in pairs for told in pair)
    shown = ", ".join(f"{told['losses'][0]:.2f} to {told['losses'][-1]:.2f}" for told in pairs[0])
    model = f"decoder of {pairs[0][0]['weights'] / 1e6:,.2f}M weights in bf16 on JAX"
    yield Row(
        f"{model}, its loss over one batch; then that of a plain flax and optax script", shown, "both fall", falls
    )
    used = [[mfu(stage.gpu, spec, told, causal=True) for told in pair] for pair in pairs]
    yield from compared(stage, model, "the plain script's", pairs, used, speed=0.98, utilisation=0.5)


def compared(
    stage: Stage, model: str, other: str, pairs: Sequence[Pair], used: Sequence[Sequence[float | None]], *,
    speed: float, memory: float | None = None, utilisation: float | None = None,
) -> Iterator[Row]:  # fmt: skip
    """Compare speed, MFU if the peak of the device is known, and memory if the device reports it.

    Args:
        stage: where they ran.
        model: name of the model.
        other: name of the other side.
        pairs: the reports of each round.
        used: the MFU of both in each round.
        speed: promised minimum of our speed divided by the other's.
        memory: promised maximum of our peak memory divided by the other's.
        utilisation: promised minimum of our MFU.
    """
    ratios = [ours["tokens_per_second"] / its["tokens_per_second"] for ours, its in pairs]
    yield stage.bounded(f"tokens/s, {model}, over {other}", f"{spread(ratios)}x", f">= {speed}x",
                        statistics.median(ratios) >= speed)  # fmt: skip
    mine, theirs = ([share for share in side if share is not None] for side in zip(*used, strict=True))
    if mine:
        limit = "no limit" if utilisation is None else f">= {utilisation:.2f}"
        yield stage.bounded(f"MFU, {model}; {other}: {spread(theirs)}", spread(mine), limit,
                            utilisation is None or statistics.median(mine) >= utilisation)  # fmt: skip
    if pairs[0][0]["peak_bytes"] is not None:
        sizes = [ours["peak_bytes"] / its["peak_bytes"] for ours, its in pairs]
        what = f"peak memory, {model} ({pairs[0][0]['peak_bytes'] / 2**30:.1f} GiB), over {other}"
        limit = "no limit" if memory is None else f"<= {memory}x"
        yield stage.bounded(what, f"{spread(sizes)}x", limit, memory is None or statistics.median(sizes) <= memory)


def mfu(gpu: str | None, spec: Spec, told: Told, *, causal: bool) -> float | None:
    """Return the MFU: 6 FLOPs per weight and token plus 12 L D T for attention, half of that if causal, over the peak.

    Source: Chowdhery et al., PaLM, arXiv 2204.02311, appendix B.
    """
    peak = device_of_kind(gpu or "").peak_flops
    attention = (6 if causal else 12) * spec["layers"] * spec["dims"] * spec["length"]
    return Efficiency(6 * told["weights"] + attention, 1, 1, peak).mfu(1 / told["tokens_per_second"])


def largest_difference(ours: Sequence[float], other: Sequence[float]) -> float:
    """Return the largest difference of two sequences of losses; infinite if a loss is missing or not finite."""
    if len(ours) != len(other) or not all(map(math.isfinite, [*ours, *other])):
        return math.inf
    return max((abs(mine - its) for mine, its in zip(ours, other, strict=True)), default=math.inf)


PARTS: list[tuple[str, str, float, Callable[..., Iterator[Row]]]] = [
    ("fp16, x-train's engine", "fp16", 90, partial(fp16_overflow, door="engine")),
    ("fp16, our Trainer", "fp16", 130, partial(fp16_overflow, door="trainer")),
    ("DDP and FSDP2 on one device", "strategies", 210, strategies),
    ("BERT in bf16", "bert", 350, bert),
    ("decoder on JAX", "decoder", 560, decoder),
]
"""(title, spec, seconds after the start at which it must end); later parts use the time that earlier ones leave."""


def measure(gpu: str | None) -> Iterator[Row]:
    """Run all parts, even if earlier ones fail.

    Args:
        gpu: name of the device; None for a small run on the CPU.
    """
    started, specs = time.monotonic(), FULL if gpu else SMALL
    for what, spec, seconds, part in PARTS:
        try:
            yield from part(Stage(gpu, started + seconds), specs[spec])
        except PeerFailed as failure:
            print(failure, file=sys.stderr, flush=True)
            last = str(failure).strip().splitlines()[-1].replace("|", "/")
            yield Row(what, f"not measured: {last}", "measured", False)


# ---- the device


def gpu_at_hand() -> str | None:
    """Return the name of the GPU that the parts would use; None if torch sees none."""
    code = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **ONE_GPU})
    return done.stdout.strip() or None
