"""Inputs that no data set holds: texts of a wanted length, and rows that are empty, very long or far from ASCII."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice
from typing import TYPE_CHECKING

from xdpx.processors.samples import Samples

if TYPE_CHECKING:
    from torch import Tensor

    from xdpx.loaders.base import Loader
    from xdpx.processors.base import Processor

RUNS = 50
"""Texts whose time is taken."""
ODD_TEXTS = (
    "",
    " ",
    "I 💛 it 🎬👍🏽 \U0001d518\U0001d52b\U0001d526 한국어 \U00020000好",
    "¿naïve café? don't… №5 \t#@!",
    "好 film",
)
"""Texts that trip up what reads texts: nothing, a blank, characters beyond 16 bits, marks, two scripts."""
LONG = 3
"""A very long text has so many times the tokens that a model reads."""


def sample_inputs(processor: Processor, lengths: Sequence[int]) -> dict[str, Tensor]:
    """Return what a network reads of a batch of texts of so many tokens, one after another of the vocabulary.

    Args:
        processor: collates them.
        lengths: tokens of each text, cut to what the processor allows.
    """
    import torch

    from xdpx.engines.pytorch.transfer import to_device

    known = processor.parameters.vocab_size if processor.vocabulary is None else len(processor.vocabulary)
    words = chain_of_words(known or 1, processor.pad_index)
    records = [{name: list(islice(words, length)) for name in processor.text_fields} for length in lengths]
    samples = [sample for record in records if (sample := processor.numerize(record, None)) is not None]
    batch = processor.collate(Samples.from_dicts(samples, processor.columns(labelled=False)))
    inputs: dict[str, Tensor] = to_device(batch, torch.device("cpu"))["net_input"]
    return inputs


def chain_of_words(vocab_size: int, pad_index: int) -> Iterator[int]:
    """Return the ids of a vocabulary round and round, without padding: texts in which no two neighbours are alike.

    A network of which parts decide by what the words are shows it only when they differ.
    """
    return cycle([index for index in range(vocab_size) if index != pad_index] or [pad_index])


def odd_rows(loader: Loader, words: Sequence[str], max_len: int) -> list[list[str]]:
    """Return rows of raw text that are rare and that programs trip over, without labels.

    Args:
        loader: of the model, which says how many texts a row has.
        words: some that the vocabulary knows.
        max_len: tokens that the model reads of a text.
    """
    long = " ".join(islice(cycle(words or ["a"]), LONG * max_len))
    texts, count = [*ODD_TEXTS, long, long.replace(" ", "")], len(loader.text_fields)
    turned = [texts[index:] + texts[:index] for index in range(count)]
    before = ["0"] * len(loader.before)
    return [[*before, *cells] for cells in zip(*turned, strict=True)]


def milliseconds(run: Callable[[], object]) -> float:
    """Return the median time of one call, in milliseconds; the first ones, which may compile, do not count."""
    times = []
    for _ in range(2 * RUNS):
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return 1000 * statistics.median(times[RUNS:])
