"""Which weights get weight decay, for all models and all doors; rules that predecessors promised are listed as data."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Rule = Literal["everything", "bert", "library", "trainer"]


class Spared(NamedTuple):
    """Weights that are exempt from weight decay.

    Attributes:
        names: pattern searched in the lower-cased names of weights; matches are exempt. None: no name is.
        vectors: whether one-dimensional weights are exempt, whatever their name.
    """

    names: re.Pattern[str] | None = None
    vectors: bool = False


SPARED: dict[Rule, Spared] = {
    "everything": Spared(),
    "bert": Spared(re.compile(r"(?:bias|gate)$|norm")),
    "library": Spared(vectors=True),
    "trainer": Spared(re.compile(r"bias|layernorm|rmsnorm|(?:^|\.)norm(?:$|\.)|_norm(?:$|\.)")),
}
"""everything: x-train's own networks, because the first XDPX exempted weights of BERT only. bert: the BERT family;
gates are those of ReZero. library: models built by transformers, whose norms have many names, but are all vectors.
trainer: as the Hugging Face Trainer, which also exempts every weight inside an `nn.LayerNorm`."""


def decays(rule: Rule, name: str, num_dims: int) -> bool:
    """Return whether a weight with this name and number of dimensions gets weight decay."""
    spared = SPARED[rule]
    named = spared.names is not None and spared.names.search(name.lower()) is not None
    return not named and not (spared.vectors and num_dims == 1)
