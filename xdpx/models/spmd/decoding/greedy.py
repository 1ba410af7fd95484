"""Greedy decoding, and the base class of all decoders."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from xdpx.config.faults import refusal
from xdpx.config.hparams import BaseHParams, Configurable
from xdpx.models.spmd.decoding.sequences import Decoded, DecodeStep, Limits, Prompts, gathered, grown, started


class Decoder(Configurable):
    """A way to continue prompts."""

    class HParams(BaseHParams):
        """Limits of rows.

        Attributes:
            max_decode_steps: maximum number of new tokens, without the prompt.
            min_decode_steps: minimum number of new tokens before an end of sequence.
            eos_id: the id, or ids, that end a row; None: every row gets `max_decode_steps` tokens.
            pad_id: the id after the end of a row.
        """

        max_decode_steps: int = 32
        min_decode_steps: int = 0
        eos_id: int | Sequence[int] | None = 1
        pad_id: int = 0

    def __init__(self, hparams: HParams) -> None:
        """Check the limits.

        Raises:
            ConfigError: the limits are inconsistent.
        """
        if not 0 <= hparams.min_decode_steps <= hparams.max_decode_steps or hparams.max_decode_steps < 1:
            raise refusal(
                type(self).__name__,
                f"min_decode_steps is {hparams.min_decode_steps} and max_decode_steps is {hparams.max_decode_steps}.",
                "Use 0 <= min_decode_steps <= max_decode_steps, and at least one step.",
            )

    @property
    def limits(self) -> Limits:
        """The limits of rows."""
        known = self.hparams
        ends = () if known.eos_id is None else known.eos_id
        ends = (ends,) if isinstance(ends, int) else tuple(ends)
        return Limits(known.max_decode_steps, known.min_decode_steps, ends, known.pad_id)

    @property
    def rows_per_prompt(self) -> int:
        """Number of continuations of each prompt."""
        return 1

    def decode(self, step: DecodeStep, prompts: Prompts, key: jax.Array) -> Decoded:
        """Continue every prompt. Traceable.

        Args:
            step: the model, see `sequences.Step`.
            prompts: ids (B, P) and lengths (B,).
            key: random key, if the decoder samples.
        """
        raise NotImplementedError(f"{type(self).__name__} has no decode: use Greedy-, Sample- or BeamDecoder.")


class GreedyDecoder(Decoder):
    """Chooses the most probable token at each step."""

    class HParams(Decoder.HParams):
        """The limits only."""

    def decode(self, step: DecodeStep, prompts: Prompts, key: jax.Array) -> Decoded:
        """Continue every prompt by its most probable tokens; the key is unused."""
        rows = started(step, prompts, self.limits, times=1)
        return gathered(grown(step, rows, lambda logits, number: jnp.argmax(logits, -1), self.limits), prompts)
