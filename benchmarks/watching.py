"""Overhead of default monitoring: phases, batches kept for non-finite updates, and the seconds of each update.

Its CPU time per update is compared with that of an update of a small BERT (4 layers, 128 wide, 8 short texts): smaller
models are hardly ever trained, and for larger ones the share is lower.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks.report import Row, spread

UPDATES = 5000
ROUNDS = 7
LIMIT = 0.01
TEXTS = {name: np.zeros((8, 32), np.int64) for name in ("tokens", "mask", "segments")}
WATCHED = {"net_input": TEXTS, "id": np.arange(8)}


class Idle:
    """An engine that does nothing, so that only the code around it is measured."""

    def update(self, state: None, group: Sequence[Any]) -> tuple[None, dict[str, Any]]:
        """Do nothing."""
        return state, {}


def measure() -> list[Row]:
    """Compare CPU seconds of the loop with and without monitoring, round by round."""
    with_, without = [], []
    for _ in range(ROUNDS):
        with_.append(_loop(watched=True))
        without.append(_loop(watched=False))
    costs = [1e6 * (one - other) / UPDATES for one, other in zip(with_, without, strict=True)]
    flag = _flag()
    update = _update()
    share = (median(costs) + flag) / update
    return [
        Row(
            f"phases, kept batches and seconds: {spread(costs, 1)} us of CPU an update; the flag of NaN {flag:.1f} us",
            f"{share:.3%} of {update / 1000:.1f} ms", f"<= {LIMIT:.0%} of an update", share <= LIMIT,
        )
    ]  # fmt: skip


def _loop(*, watched: bool) -> float:
    """Return the CPU seconds of updates that do nothing."""
    from xdpx.datasets.plan import Position
    from xdpx.training.hunting import Hunter
    from xdpx.training.loop import Callback, Session, fit
    from xdpx.training.progress import Progress
    from xdpx.training.spending import Spending
    from xdpx.training.watching import Phases

    def groups() -> Generator[Any]:
        for _ in range(UPDATES):
            yield Position(), [WATCHED]

    session = Session(Idle(), None, Progress(), UPDATES, UPDATES)
    source: Generator[Any] = groups()
    callbacks: list[Callback] = []
    if watched:
        hunter, phases = Hunter(None), Phases()
        source, callbacks = phases.groups(hunter.groups(source, session)), [phases, hunter, Spending()]
    begun = time.process_time()
    fit(session, source, callbacks)
    return time.process_time() - begun


def _flag() -> float:
    """Return the microseconds for the flag of an update that ends a training."""
    one, other = torch.zeros(()), torch.zeros(())
    begun = time.process_time()
    for _ in range(UPDATES):
        torch.maximum(one, other)
    return 1e6 * (time.process_time() - begun) / UPDATES


def _update() -> float:
    """Return the microseconds of CPU time of a forward and backward pass and an optimizer step."""
    from transformers import BertConfig, BertForSequenceClassification

    model = BertForSequenceClassification(
        BertConfig(hidden_size=128, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512)
    )
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    ids, labels = torch.randint(0, 1000, (8, 32)), torch.zeros(8, dtype=torch.long)
    taken = []
    for _ in range(12):
        begun = time.process_time()
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        taken.append(time.process_time() - begun)
    return 1e6 * median(taken)
