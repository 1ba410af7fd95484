"""A network as TorchScript: one file that runs without Python and without this package."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from xdpx.config.faults import THIS_RUN, ConfigError, Fault
from xdpx.processors.samples import Samples

if TYPE_CHECKING:
    from torch import Tensor, nn

    from xdpx.processors.base import Processor

Inputs = Mapping[str, Any]
SAME = 1e-5
"""A logit x counts as the same when it differs by no more than SAME * (1 + |x|)."""
RUNS = 50
"""Texts whose time is taken."""


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


def trace(model: nn.Module, inputs: Inputs, others: Sequence[Inputs]) -> Any:
    """Return the network as TorchScript, with normalised weights worked out; it takes the inputs in their order.

    Args:
        model: on the CPU. It is no longer fit for training.
        inputs: a batch to follow through the network.
        others: batches of other shapes, on which both must agree.

    Raises:
        ConfigError: the network gives something else than one tensor, cannot be traced, or decides by the shape or
            the words of its input.
    """
    import torch

    model.eval().requires_grad_(False)
    batches = [inputs, *others]
    expected = [model(**each) for each in batches]
    if not isinstance(expected[0], torch.Tensor):
        raise refusal(type(model).__name__, "gives several outputs, but the file is to give one: logits")
    _work_out_weights(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a branch that depends on the shape shows below, where it matters
        try:
            traced = torch.jit.trace(model, tuple(inputs.values()), check_trace=False)  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            raise refusal(type(model).__name__, f"cannot be traced: {first_line(error)}") from error
    compare(traced, batches, expected, what=f"{type(model).__name__} traced")
    return traced


def compare(network: Callable[..., Any], batches: Sequence[Inputs], expected: Sequence[Tensor], *, what: str) -> None:
    """Refuse a network that gives other logits than expected for one of some batches.

    Args:
        network: takes the inputs of a batch in their order.
        batches: what it is given.
        expected: the logits of each batch.
        what: the network, for the message.

    Raises:
        ConfigError: the logits differ.
    """
    import torch

    for each, wanted in zip(batches, expected, strict=True):
        found = network(*each.values())
        if found.shape != wanted.shape or not torch.allclose(found, wanted, rtol=SAME, atol=SAME):
            shape = tuple(next(iter(each.values())).shape)
            raise refusal(what, f"gives other logits for an input of shape {shape}")


def content_of(traced: nn.Module) -> bytes:
    """Return the file of a traced network."""
    import torch

    buffer = BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch advises torch.export, whose programs need more than libtorch
        torch.jit.save(traced, buffer)
    return buffer.getvalue()


def milliseconds(traced: nn.Module, inputs: Inputs) -> float:
    """Return the median time of one batch on one thread, in milliseconds."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            times = [_timed(traced, tuple(inputs.values())) for _ in range(2 * RUNS)]
    finally:
        torch.set_num_threads(threads)
    return 1000 * statistics.median(times[RUNS:])  # the first ones compile


def _timed(traced: nn.Module, inputs: tuple[Any, ...]) -> float:
    begun = time.perf_counter()
    traced(*inputs)
    return time.perf_counter() - begun


def _work_out_weights(model: nn.Module) -> None:
    """Replace weights that are worked out at every step, such as normalised ones, by what they are."""
    from torch.nn.utils import parametrize

    for module in list(model.modules()):
        for name in list(getattr(module, "parametrizations", {})):
            parametrize.remove_parametrizations(module, name)


def first_line(error: Exception) -> str:
    """Return the first line of what an error says."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def refusal(what: str, problem: str) -> ConfigError:
    """Say why a network cannot be exported."""
    return ConfigError(THIS_RUN, [Fault("model", f"{what} {problem}.", "Export another model.")])
