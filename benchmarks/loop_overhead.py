"""Our loop with its callbacks compared with a bare PyTorch loop, on the same batches of a BERT of MiniLM's size."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch

from benchmarks.report import Row, spread
from benchmarks.training import prepare, train_values
from benchmarks.work import write_config

STEPS = 16
ROUNDS = 7
CLIP_NORM = 1.0
BATCH_SIZES = (8, 32)


class Bare:
    """A minimal training loop: forward, mean loss, backward, clip, fused AdamW, schedule."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model.train()
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5, eps=1e-8, weight_decay=0.0, fused=True)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1.0)

    def train(self, groups: Sequence[Any]) -> None:
        """Take one update per batch, with the tensors prepared beforehand."""
        for inputs, target in groups:
            loss = torch.nn.functional.cross_entropy(self.model(**inputs), target)
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP_NORM)
            self.optimizer.step()
            self.schedule.step()
            self.optimizer.zero_grad()


def measure() -> list[Row]:
    """Take the same updates with both loops in turn, and compare them round by round."""
    return [measure_batch_size(size) for size in BATCH_SIZES]


def measure_batch_size(batch_size: int) -> Row:
    """Compare the two loops with one batch size."""
    from xdpx.config.loading import load
    from xdpx.engines.pytorch import gradients
    from xdpx.reports.growing_table import GrowingTable
    from xdpx.runs.assembly import build_parts
    from xdpx.training.accumulation import MetricAccumulator
    from xdpx.training.callbacks.logging import LOG, Logging
    from xdpx.training.loop import Session, fit
    from xdpx.training.progress import Progress

    config = write_config("loop", train_values("sst2", prepare("sst2", 128), save=False) | {"batch_size": batch_size})
    run = load(config, "x-train")[0]
    settings = run.parameters("command")
    gradients.LARGE_EMBEDDING = sys.maxsize  # dense gradients on both sides: this compares loops, not gradients
    parts = build_parts(run, settings, progress=Progress(), saved={})
    groups = list(islice(parts.groups(Progress()), STEPS))
    tensors = [
        (
            {name: torch.from_numpy(value) for name, value in batch["net_input"].items()},
            torch.from_numpy(batch["target"]),
        )
        for _, group in groups
        for batch in group
    ]
    bare = Bare(parts.engine.start(1).task.model)
    state = parts.engine.start(1)
    ratios = []
    for round_number in range(ROUNDS + 1):
        accumulator = MetricAccumulator(parts.engine.facts_to_host, windows=(LOG,))
        logging = Logging(GrowingTable("memory://loop.tsv"), accumulator, parts.loss.train_metrics, interval=10)
        session = Session(parts.engine, state, Progress(), STEPS, STEPS)
        first = seconds(lambda: fit(session, groups, [logging]))  # noqa: B023 - called at once
        second = seconds(lambda: bare.train(tensors))
        if round_number:  # the first round is a warm-up for both
            ratios.append(first / second)
    slower = (statistics.median(ratios) - 1) * 100
    return Row(
        f"our loop with logging over a bare PyTorch loop, batch {batch_size}, sst2",
        f"{spread(ratios, 3)}x the time", "<= 1.03x", slower <= 3,
    )  # fmt: skip


def seconds(work: Any) -> float:
    """Return the seconds that a call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
