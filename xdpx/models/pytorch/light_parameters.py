"""What the light networks over word vectors let a user decide. No torch here, as in `parameters`."""

from __future__ import annotations

from typing import Literal

from xdpx.config import parameters as declare
from xdpx.models.pytorch.parameters import TableParameters

FASTTEXT_BUCKETS = 2_000_000
"""As many as fastText has."""


class LightParameters(TableParameters):
    """Keys of the networks that train their word vectors unless told otherwise."""

    fix_embeddings: bool = declare.param(False, doc="Leave the word vectors as they are.")


class BagParameters(LightParameters):
    """Keys of `bow`."""

    word_ngrams: int = declare.param(1, ge=1, le=8, doc="Longest run of tokens that has a vector of its own.")
    ngram_buckets: int = declare.param(
        100_000,
        gt=0,
        le=FASTTEXT_BUCKETS,
        doc="Number of vectors that all runs of 2 and more tokens share, by a hash.",
        when=("word_ngrams", ">", 1),
    )


class PoolingParameters(LightParameters):
    """Keys of the networks that end in one pooled vector per text."""

    hidden_size: int = declare.param(gt=0, doc="Width of the layers.")
    pooling: Literal["max", "attn"] = declare.param("max", doc="How one vector is made of all positions.")
    pool_hidden_size: int | None = declare.param(
        None, gt=0, doc="Width of the attention's own layer; null: hidden_size.", when=("pooling", "is", "attn")
    )
    pool_output_size: int | None = declare.param(
        None, gt=0, doc="Width of the pooled vector; null: hidden_size.", when=("pooling", "is", "attn")
    )


class RecurrentSizes(LightParameters):
    """Keys of the networks that read a text in both directions."""

    hidden_size: int = declare.param(gt=0, doc="Width of both directions together.")
    encoder_layers: int | None = declare.param(None, gt=0, doc="Layers of recurrent cells; null: 1.")

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse a width that two directions cannot share."""
        return two_halves(self.hidden_size)


class RecurrentParameters(RecurrentSizes, PoolingParameters):
    """Keys of those that end in one pooled vector per text."""


class TaggerParameters(RecurrentSizes):
    """Keys of those that give a tag to each word."""

    use_crf: bool = declare.param(False, doc="Judge all tags of a text together, by which follow which.")


class PyramidParameters(LightParameters):
    """Keys of `dpcnn`."""

    hidden_size: int = declare.param(gt=0, doc="Number of features at every position; the paper has 250.")
    blocks: int = declare.param(4, gt=0, doc="Pairs of convolutions; before each but the first the length is halved.")


class EsimParameters(LightParameters):
    """Keys of `esim`."""

    hidden_size: int = declare.param(gt=0, doc="Width of both directions together; the paper has 600.")

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse a width that two directions cannot share."""
        return two_halves(self.hidden_size)


class DssmParameters(LightParameters):
    """Keys of `dssm`."""

    hidden_size: int = declare.param(gt=0, doc="Width of the layers; the paper has 300.")
    output_size: int | None = declare.param(
        None, gt=0, doc="Width of the vector of a text, the paper has 128; null: hidden_size."
    )
    encoder_layers: int | None = declare.param(None, gt=0, doc="Layers below the last; null: 2, as in the paper.")
    share_towers: bool = declare.param(True, doc="Use the same layers for both texts.")
    prediction: Literal["classes", "cosine"] = declare.param(
        "classes", doc="classes: a logit for each; cosine: as it is, for losses that compare pairs (circle_siamese)."
    )


def two_halves(hidden_size: int) -> list[tuple[str, str]]:
    """Give the conflict of an odd width with its two directions, if it is one."""
    if hidden_size % 2 == 0:
        return []
    return [("hidden_size", f"is {hidden_size}. Use an even number: each direction gets half of it.")]
