"""The seam to hardware: what one device backend must be able to do. State goes in, state comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

Batch = Mapping[str, Any]
"""What a processor collates: numpy arrays, nested one level under `net_input`. Opaque to the loop."""

State = Any
"""Opaque to everybody but the engine that made it."""

Facts = Mapping[str, Any]
"""Scalars that may still live on the device: nothing waits for them until somebody prints them."""


class Engine(Protocol):
    """One device backend. The loop never looks inside a state or a batch."""

    def start(self, seed: int) -> State:
        """Build or load the model and its optimizer; `seed` decides every random initial weight."""
        ...

    def update(self, state: State, group: Sequence[Batch]) -> tuple[State, Facts]:
        """Take one optimizer update from a group of micro-batches.

        The gradient is that of (sum of loss sums) / (sum of counts) over the whole group, so cutting a group into
        more micro-batches changes nothing in the mathematics. Randomness depends on (seed, number of updates) alone.
        """
        ...

    def score(self, state: State, batch: Batch) -> Facts:
        """Give the task's predictions and loss sums for one batch, with averaged (EMA) weights when kept. No gradient."""
        ...

    def snapshot(self, state: State) -> dict[str, Any]:
        """Copy out everything needed to continue bit for bit: weights, optimizer, EMA, scaler, update count."""
        ...

    def restore(self, saved: Mapping[str, Any]) -> State:
        """Rebuild the state that `snapshot` copied, also on another device."""
        ...

    def weights(self, state: State) -> dict[str, Any]:
        """Give the weights a user wants to keep: averaged (EMA) ones when kept, float32, on the host."""
        ...

    def facts_to_host(self, facts: Facts) -> dict[str, float]:
        """Wait for the device and give plain floats. The only place where the host waits for numbers."""
        ...
