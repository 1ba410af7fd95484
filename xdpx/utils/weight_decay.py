"""Which weights decay: said here for every model and both doors, with what the ancestors promised otherwise as data."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Rule = Literal["everything", "bert", "library", "trainer"]


class Spared(NamedTuple):
    """What weight decay leaves alone.

    Attributes:
        names: found in the lower-cased name of a weight that is left alone; None: no name counts.
        vectors: whether weights of one dimension are left alone, whatever their name.
    """

    names: re.Pattern[str] | None = None
    vectors: bool = False


SPARED: dict[Rule, Spared] = {
    "everything": Spared(),
    "bert": Spared(re.compile(r"(?:bias|gate)$|norm")),
    "library": Spared(vectors=True),
    "trainer": Spared(re.compile(r"bias|layernorm|rmsnorm|(?:^|\.)norm(?:$|\.)|_norm(?:$|\.)")),
}
"""everything: x-train's own networks, for the first XDPX promised an exception to BERT alone. bert: the BERT family;
gates are those of ReZero. library: models that transformers builds whole, whose norms have many names, but are vectors.
trainer: as the Hugging Face Trainer, which beside these names leaves alone all that is in an `nn.LayerNorm`."""


def decays(rule: Rule, name: str, num_dims: int) -> bool:
    """Tell whether weight decay pulls on a weight of this name with so many dimensions."""
    spared = SPARED[rule]
    named = spared.names is not None and spared.names.search(name.lower()) is not None
    return not named and not (spared.vectors and num_dims == 1)
