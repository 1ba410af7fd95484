"""Synthetic inputs of tokens, to try a model, a mesh or a step at any size without data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from xdpx.config.hparams import BaseHParams
from xdpx.datasets.inputs.base_input import ArraySpec, BaseInput, State, refused, state_number
from xdpx.datasets.inputs.order import part_of
from xdpx.datasets.inputs.rows import SAMPLE_WEIGHTS
from xdpx.processors.randomness import below, bits, key
from xdpx.utils.nested_map import NestedMap

Pattern = Literal["cycle", "random", "constant"]

_SYNTHETIC = 13
"""Purpose of the random key of these rows."""

LARGEST_STEP = 3


class SyntheticInput(BaseInput):
    """Synthetic batches for a language model; global row g does not depend on the number of hosts.

    `cycle` counts up from a random token by a step of 1 to 3, which a model learns in some hundred steps; `random`
    cannot be learnt; `constant` is learnt at once (as Pax's synthetic data).
    """

    class HParams(BaseInput.HParams):
        """Fields of the input.

        Attributes:
            seq_len: number of tokens of a row.
            vocab_size: tokens are from 1 to below it.
            pattern: `cycle`, `random` or `constant`.
            num_batches: number of batches of an epoch; None: infinite.
        """

        seq_len: int = 128
        vocab_size: int = 1024
        pattern: Pattern = "cycle"
        num_batches: int | None = None

    def __init__(self, hparams: BaseHParams) -> None:
        super().__init__(hparams)
        self._batch = 0
        if hparams.batch_size is None:
            raise refused(hparams, "batch_size", "is missing.", "Give the rows per host.")
        if hparams.vocab_size < 2 or hparams.seq_len < 1:
            problem = f"is {hparams.vocab_size}, seq_len {hparams.seq_len}."
            raise refused(hparams, "vocab_size", problem, "Use at least 2 tokens (0 is padding) and rows of 1.")
        if hparams.num_batches is None and not hparams.is_training and self.window.kind == "full_epoch":
            remedy = "Give num_batches, or write eval_window='first(n)'."
            raise refused(hparams, "eval_window", "is a full epoch of data without end.", remedy)

    def get_next(self) -> NestedMap:
        """Return this host's rows of the next batch. Raises StopIteration after `num_batches`."""
        p = self.hparams
        if p.num_batches is not None and self._batch >= p.num_batches:
            raise StopIteration
        rows = part_of(p.batch_size, self.num_hosts, self.host_index, first=self._batch * self.global_batch_size)
        self._batch += 1
        tokens = self._tokens(rows)
        shape = tokens.shape
        ids = np.zeros(shape, np.int32)
        ids[:, 1:] = tokens[:, :-1]
        return NestedMap(
            ids=ids,
            labels=tokens,
            weights=np.ones(shape, np.float32),
            paddings=np.zeros(shape, np.float32),
            segment_ids=np.ones(shape, np.int32),
            segment_pos=np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape).copy(),
            eval_sample_weights=np.ones(shape[0], np.float32),
        )

    def _tokens(self, rows: NDArray[np.int64]) -> NDArray[np.int32]:
        p = self.hparams
        places = np.arange(p.seq_len)
        words = key(p.input_random_seed or 0, _SYNTHETIC) + rows.astype(np.uint64)
        if p.pattern == "constant":
            numbers = np.zeros((len(rows), p.seq_len), np.int64)
        elif p.pattern == "random":
            numbers = below(bits(words[:, None], places), p.vocab_size - 1)
        else:
            first, step = below(bits(words, 0), p.vocab_size - 1), below(bits(words, 1), LARGEST_STEP) + 1
            numbers = (first[:, None] + step[:, None] * places) % (p.vocab_size - 1)
        return (numbers + 1).astype(np.int32)

    def reset(self) -> None:
        """Start again from the first batch."""
        super().reset()
        self._batch = 0

    def get_state(self) -> State:
        """Return the number of rows used, over all hosts."""
        return {"rows": self._batch * self.global_batch_size}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a position, also with another number of hosts. Raises ValueError within a global batch."""
        rows = state_number(state, "rows", self)
        if rows % self.global_batch_size:
            raise ValueError(
                f"{self.name}: {rows} rows were used, which is not a whole number of global batches of "
                f"{self.global_batch_size}. Keep batch_size x num_infeed_hosts, or choose a divisor of it."
            )
        self._batch = rows // self.global_batch_size

    def spec(self) -> NestedMap:
        """Return the ArraySpec of every array, without making a batch."""
        rows, width = self.hparams.batch_size + self.hparams.batch_padding_size, self.hparams.seq_len
        integers = ("ids", "labels", "segment_ids", "segment_pos")
        specs = {name: ArraySpec((rows, width), np.dtype(np.int32)) for name in integers}
        specs |= {name: ArraySpec((rows, width), np.dtype(np.float32)) for name in ("weights", "paddings")}
        return NestedMap({**specs, SAMPLE_WEIGHTS: ArraySpec((rows,), np.dtype(np.float32))})
