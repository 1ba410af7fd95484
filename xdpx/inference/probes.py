"""Artificial inputs: texts of a given length, odd rows of raw text; and what they show of a network."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from xdpx.processors.samples import Samples

if TYPE_CHECKING:
    from torch import Tensor, nn

    from xdpx.loaders.base import Loader
    from xdpx.processors.base import Processor

RUNS = 50
"""Calls that are timed."""
ODD_TEXTS = (
    "",
    " ",
    "I 💛 it 🎬👍🏽 \U0001d518\U0001d52b\U0001d526 한국어 \U00020000好",
    "¿naïve café? don't… №5 \t#@!",
    "好 film",
)
"""Difficult texts: empty, a space, characters beyond 16 bits, symbols and accents, two scripts."""
TRIED_TOGETHER = 2
"""Batches whose rows are also computed one by one."""
MOST_OF_NEIGHBOURS = 1e-3
"""Largest difference that the other rows of a batch may make to an output x, relative to 1 + |x|: rounding alone."""
LONG = 3
"""Length of a very long text, as a multiple of the model's max_len."""


def sample_inputs(processor: Processor, lengths: Sequence[int]) -> dict[str, Tensor]:
    """Return the network inputs of a batch of texts of given lengths, whose tokens run through the vocabulary.

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
    """Return an endless cycle over the ids of a vocabulary except padding, so that neighbouring tokens differ.

    A network that branches on token values shows it only if they differ.
    """
    return cycle([index for index in range(vocab_size) if index != pad_index] or [pad_index])


def odd_rows(loader: Loader, words: Sequence[str], max_len: int) -> list[list[str]]:
    """Return unlabelled rows of raw text that programs tend to fail on.

    Args:
        loader: of the model, which says how many texts a row has.
        words: some known words, for the long texts.
        max_len: tokens that the model reads of a text.
    """
    long = " ".join(islice(cycle(words or ["a"]), LONG * max_len))
    texts, count = [*ODD_TEXTS, long, long.replace(" ", "")], loader.num_sections
    turned = [texts[index:] + texts[:index] for index in range(count)]
    before = ["0"] * len(loader.before)
    return [[*before, *cells] for cells in zip(*turned, strict=True)]


def remembered(network: nn.Module, given: Sequence[Tensor]) -> str | None:
    """Return the attribute that changes a network's outputs from call to call, with its path; None if there is none.

    A counter in Python, for example, which an export would keep as it is at the time.
    """
    import torch

    with torch.no_grad():
        network(*given)  # what is computed once and then kept is not a memory
        first, before = network(*given), _attributes(network)
        again, after = network(*given), _attributes(network)
    pairs = zip(_outputs(first), _outputs(again), strict=True)
    if all(torch.equal(one.nan_to_num(), other.nan_to_num()) for one, other in pairs):
        return None
    return next((name for name, value in after.items() if before.get(name) != value), None)


def draws(network: nn.Module, given: Sequence[Tensor]) -> bool:
    """Return whether a network in evaluation mode returns other outputs for the same input at its next call."""
    import torch

    with torch.no_grad():
        pairs = zip(_outputs(network(*given)), _outputs(network(*given)), strict=True)
        return not all(torch.equal(one.nan_to_num(), other.nan_to_num()) for one, other in pairs)


def of_neighbours(network: nn.Module, batches: Sequence[Sequence[Tensor]]) -> float:
    """Return how much the outputs of a row differ in a batch from those that it has alone, relative to 1 + |x|.

    Rows keep the width they are padded to. A network whose inputs or outputs do not have one entry for each row, such
    as the positions of masked tokens, is not tried: 0. Infinite if it fails for a single row.

    Args:
        network: in evaluation mode.
        batches: its inputs, with different numbers of rows.
    """
    import torch

    worst, several = 0.0, [given for given in batches if len(given[0]) > 1]
    if any(len({each.shape[:1] for each in given}) > 1 for given in batches):
        return worst
    with torch.no_grad():
        for given in several[:TRIED_TOGETHER]:
            together, rows = _outputs(network(*given)), given[0].shape[:1]
            for row in range(len(given[0])):
                try:
                    alone = _outputs(network(*(each[row : row + 1] for each in given)))
                except (RuntimeError, ValueError):  # such as of BatchNorm: no variance of one row
                    return float("inf")
                pairs = zip(together, alone, strict=True)
                worst = max([worst, *(_apart(whole, row, one) for whole, one in pairs if whole.shape[:1] == rows)])
    return worst


def _outputs(found: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return found if isinstance(found, tuple) else (found,)


def _apart(together: Tensor, row: int, alone: Tensor) -> float:
    """Return how far a row of a batch is from the same row alone; 0 if its shape follows the batch, as a length may."""
    one = together[row : row + 1]
    return difference(alone.numpy(), one.numpy()) if alone.shape == one.shape else 0.0


def difference(found: Any, wanted: Any) -> float:
    """Return the largest |found - wanted| / (1 + |wanted|); infinite if shapes or non-finite entries differ."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.shape != wanted.shape:
        return float("inf")
    if not found.size or wanted.dtype.kind not in "fc":
        return 0.0 if np.array_equal(found, wanted) else float("inf")
    there = np.isfinite(wanted)
    if not np.array_equal(np.where(there, 0, found), np.where(there, 0, wanted), equal_nan=True):
        return float("inf")
    apart = np.abs(found[there].astype(np.float64) - wanted[there]) / (1 + np.abs(wanted[there]))
    return float(apart.max(initial=0.0)) if np.isfinite(apart).all() else float("inf")


def _attributes(network: nn.Module) -> dict[str, object]:
    """Return a value of each attribute of a network that changes with it."""
    from torch import nn

    of_torch = vars(nn.Module()).keys()
    found: dict[str, object] = {}
    for path, module in network.named_modules():
        tensors = {**module._parameters, **module._buffers}
        values = {name: value for name, value in vars(module).items() if name not in of_torch}
        found |= {
            f"{path}.{name}".lstrip("."): (id(each), each._version)
            for name, each in tensors.items()
            if each is not None
        }
        found |= {f"{path}.{name}".lstrip("."): repr(value) for name, value in values.items()}
    return found


def milliseconds(run: Callable[[], object]) -> float:
    """Return the median time of one call in milliseconds; the first calls, which may compile, are not counted."""
    times = []
    for _ in range(2 * RUNS):
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return 1000 * statistics.median(times[RUNS:])
