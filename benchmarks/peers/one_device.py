"""Train with STRATEGY in one process on one device. Usage: one_device.py STRATEGY SPEC.json: none, ddp or fsdp.

In float32, with accumulation of two, and with the same strategies as in our Trainer. Prints {"losses": [...]}.
"""

from __future__ import annotations

import json
import os
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.peers.random_bert import Spec, batch_of, classifier, read_spec, samples
from xdpx.engines.pytorch.strategies import Distributed, Sharded, Single, Strategy
from xdpx.engines.pytorch.world import current, join_alone
from xdpx.trainer.arguments.fsdp import FsdpOptions


def strategy_named(name: str, *, gpu: bool) -> Strategy:
    """Return a strategy for this device, with a process group of this process alone if it needs one."""
    world = current(use_cpu=not gpu)
    if name == "none":
        return Single(world)
    join_alone(world.device)
    return Distributed(world) if name == "ddp" else Sharded(world, FsdpOptions())


def losses_of(strategy: Strategy, spec: Spec) -> list[float]:
    """Take the updates, and return the loss of each."""
    device = torch.device("cuda" if spec["gpu"] else "cpu")
    model = strategy.prepare(classifier(spec)).train()
    weights = list(model.parameters())  # of a sharded model, these differ from the ones before
    optimizer = torch.optim.AdamW(weights, lr=1e-4)
    rows, half, losses = samples(spec), spec["rows"] // 2, []
    torch.manual_seed(2)  # for dropout: a strategy may have drawn random numbers before
    for first in range(0, len(rows), spec["rows"]):
        loss = torch.zeros((), device=device)
        for start in (first, first + half):
            batch = {name: value.to(device) for name, value in batch_of(rows[start : start + half]).items()}
            with strategy.accumulating(model, start > first):
                part = model(**batch)["loss"] / 2
                part.backward()
            loss += part.detach()
        strategy.clip(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss)
    return [float(loss) for loss in losses]


def main() -> None:
    """Train with the named strategy, with deterministic kernels where available."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # else cuBLAS may sum in a different order each time
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.matmul.allow_tf32 = False
    spec = read_spec(sys.argv[2])
    with sdpa_kernel(SDPBackend.MATH):  # the backward pass of CUDA's fused kernels is not deterministic
        losses = losses_of(strategy_named(sys.argv[1], gpu=spec["gpu"]), spec)
    print(json.dumps({"losses": losses}))


if __name__ == "__main__":
    main()
