"""Export to TorchScript: one file that runs without Python and without this package."""

from __future__ import annotations

import logging
import traceback
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any, ClassVar

from xdpx.config.faults import first_line
from xdpx.inference.formats import Exportable, Format, Network, refusal
from xdpx.logger import log
from xdpx.utils import commit, io

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

SAME = 1e-5
"""A logit x counts as the same when it differs by no more than SAME * (1 + |x|)."""
WHOLE_TENSORS = ("Converting a tensor to a NumPy array", "Converting a tensor to a Python list")
"""How torch's warnings begin if all values of a tensor leave the traced graph."""
Place = tuple[str, int]
"""A Python file and a line number."""
Tensors = tuple[Any, ...]


class TorchscriptFormat(Format):
    """TorchScript, for libtorch and for `model: torchscript`."""

    name: ClassVar[str] = "torchscript"
    file: ClassVar[str] = "model.pth"

    def write(self, exportable: Exportable, folder: str) -> dict[str, Any]:
        """Trace the network and write it."""
        commit.write_bytes(io.join(folder, self.file), content_of(traced(exportable)))
        return {}

    @classmethod
    def open(cls, folder: str, facts: Mapping[str, Any], *, threads: int | None = None) -> Network:
        """Return a function that runs the file in this process."""
        import torch

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch recommends torch.export, whose programs need more than libtorch
            network = torch.jit.load(io.join(folder, cls.file), map_location="cpu")  # type: ignore[no-untyped-call]
        return in_torch(network, facts, threads)


def in_torch(network: Callable[..., Any], facts: Mapping[str, Any], threads: int | None) -> Network:
    """Return a function that runs a torch network of positional tensors on arrays by name.

    Args:
        network: gives a tensor, or a tuple of tensors.
        facts: `inputs` and `outputs`, their names in order.
        threads: CPU threads during a call; None leaves the current number.
    """
    import torch

    inputs, outputs = facts["inputs"], facts["outputs"]

    def run(given: Mapping[str, Any]) -> Mapping[str, NDArray[Any]]:
        before = torch.get_num_threads()
        torch.set_num_threads(threads or before)
        try:
            with torch.no_grad():
                found = network(*(torch.from_numpy(given[name]) for name in inputs))
        finally:
            torch.set_num_threads(before)
        found = found if isinstance(found, tuple | list) else (found,)
        return {name: each.numpy() for name, each in zip(outputs, found, strict=True)}

    return run


def traced(exportable: Exportable) -> Any:
    """Return the network as TorchScript. Raises ConfigError as `trace` does."""
    batches = [exportable.example(index) for index in range(len(exportable.batches))]
    return trace(exportable.network, batches, what=type(exportable.model).__name__)


def trace(network: nn.Module, batches: Sequence[Tensors], *, what: str) -> Any:
    """Return a network as TorchScript, with normalised weights worked out; it takes the inputs in their order.

    Warns of each line of the network that takes values of its input into Python, to branch on or compute with them:
    the value for the first batch becomes a constant, and the other batches may be too similar to show it.

    Args:
        network: on the CPU. It can no longer be trained afterwards.
        batches: inputs of several shapes; the first is traced, and traced and original outputs must agree on all.
        what: the network, for messages.

    Raises:
        ConfigError: it cannot be traced, or its computation depends on the shape or the tokens of the input.
    """
    import torch

    network.eval().requires_grad_(False)
    looked: set[Place] = set()
    expected = []
    for each in batches:
        with _looks(looked):
            expected.append(_tensors(network(*each)))
    work_out_weights(network)
    with warnings.catch_warnings(record=True) as told, only_errors_of("transformers"):
        warnings.simplefilter("always")
        try:
            found = torch.jit.trace(network, batches[0], check_trace=False)  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            raise refusal(what, f"cannot be traced: {first_line(error)}") from error
    for each, wanted in zip(batches, expected, strict=True):
        if not _same(found, each, wanted):
            shape = tuple(each[0].shape)
            raise refusal(f"{what} traced", f"computes other logits for an input of shape {shape}")
    for name, line in dict.fromkeys((each.filename, each.lineno) for each in told if _is_fixed(each, looked)):
        log.warning(
            f"{name}:{line}: {what} converts values of its input to Python there; the export keeps those of the first "
            "batch. Use torch.where, or name rows that branch differently: rows=…"
        )
    return found


@contextmanager
def only_errors_of(library: str) -> Generator[None]:
    """Silence the log messages of a library within the `with` block, except errors."""
    logger = logging.getLogger(library)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def _looks(places: set[Place]) -> Generator[None]:
    """Add to `places` the lines that turn a tensor value into a Python number; sizes do not count."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Looks(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch does not type its modes
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.aten._local_scalar_dense.default:
                places.update((frame.filename, frame.lineno or 0) for frame in traceback.extract_stack())
            return func(*args, **kwargs or {})

    with Looks():  # type: ignore[no-untyped-call]
        yield


def _is_fixed(told: warnings.WarningMessage, looked: set[Place]) -> bool:
    """Return whether a warning is about a fixed value, not a fixed size, which comparing the other batches detects."""
    whole = str(told.message).startswith(WHOLE_TENSORS)
    return whole or (str(told.message).startswith("Converting a tensor") and (told.filename, told.lineno) in looked)


def _same(network: Callable[..., Any], given: Tensors, wanted: Tensors) -> bool:
    import torch

    try:
        found = _tensors(network(*given))
    except RuntimeError:  # a shape that was fixed to that of the first batch
        return False
    return len(found) == len(wanted) and all(
        one.shape == other.shape and torch.allclose(one, other, rtol=SAME, atol=SAME, equal_nan=True)
        for one, other in zip(found, wanted, strict=True)
    )


def _tensors(found: Tensor | Tensors) -> Tensors:
    return found if isinstance(found, tuple) else (found,)


def content_of(network: nn.Module) -> bytes:
    """Return a traced network as the bytes of a TorchScript file."""
    import torch

    buffer = BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch advises torch.export, whose programs need more than libtorch
        torch.jit.save(network, buffer)
    return buffer.getvalue()


def work_out_weights(model: nn.Module) -> None:
    """Replace parametrised weights, such as normalised ones, by their current values."""
    from torch.nn.utils import parametrize

    for module in list(model.modules()):
        for name in list(getattr(module, "parametrizations", {})):
            parametrize.remove_parametrizations(module, name)
