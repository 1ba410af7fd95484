"""The formats to which a trained network can be exported: their table, and the interface that each implements.

A new format is one file with a `Format`, and a line in `FORMATS`. `exporting.py` does the rest: the folder, the
comparison with the trained model, the files beside the network. `exported.py` runs the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from xdpx.config.faults import THIS_RUN, ConfigError, Fault, unknown_name

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from xdpx.inference.plan import InferencePlan
    from xdpx.processors.base import Processor

FORMATS: Mapping[str, str] = {
    "hf": "xdpx.inference.transformers_format:TransformersFormat",
    "onnx": "xdpx.inference.onnx_file:OnnxFormat",
    "openvino": "xdpx.inference.openvino_file:OpenVinoFormat",
    "pt2": "xdpx.inference.saved_program:ProgramFormat",
    "tf": "xdpx.inference.tf.saved_model:SavedModelFormat",
    "torchscript": "xdpx.inference.tracing:TorchscriptFormat",
}
"""Name of each format -> module and class that write and open it."""

Inputs = Mapping[str, Any]
"""The arrays that a network reads, by name: a processor's `net_input`, as tensors."""
Network = Callable[[Mapping[str, Any]], "Mapping[str, NDArray[Any]]"]
"""Runs an exported network: the inputs of a batch by name, as numpy arrays -> its outputs by name."""


@dataclass(frozen=True)
class Exportable:
    """A trained network, ready to be written, and what it was trained with.

    Attributes:
        network: takes the tensors of `inputs` in that order and returns those of `outputs`: one tensor, or a tuple.
            On the CPU, in evaluation mode, without gradients.
        inputs: names of the inputs, in order.
        outputs: names of the outputs, in order; "logits" alone except for networks with several.
        batches: inputs of several shapes, as tensors. A format may trace the network with the first.
        plan: how the run was trained and how raw text is read; where the vocabulary and the labels lie.
        processor: collates batches; it knows the vocabulary.
        labels: names of the classes, None where there are none.
        loss: turns the outputs into probabilities.
        model: the network as it was trained, which takes the inputs by name.
        form: names of all its outputs in order, None for an output that is absent.
        calibration: inputs of real rows for calibrating quantisation ranges, training rows where possible.
    """

    network: nn.Module
    inputs: Sequence[str]
    outputs: Sequence[str]
    batches: Sequence[Inputs]
    plan: InferencePlan
    processor: Processor
    labels: list[str] | None
    loss: Any
    model: nn.Module
    form: Sequence[str | None]
    calibration: Sequence[Inputs]

    def example(self, index: int = 0) -> tuple[Tensor, ...]:
        """Return one of the batches as positional arguments of the network."""
        return tuple(self.batches[index][name] for name in self.inputs)


class Format:
    """An export format: writes a network to a file, and opens that file again.

    Options of the user are arguments of the constructor.

    Attributes:
        name: its key in `FORMATS`.
        file: name of the main output, a file or a folder, which a user hands to another program.
        packages: packages that must be installed to write and to open it.
        rounding_packages: further packages that are needed to quantise to 8 bits.
        extra: the extra of xdpx that installs all of them.
        calibrates: whether it quantises with ranges that real rows have.
        most_difference: largest allowed difference from an output x of the trained network, relative to 1 + |x|.
    """

    name: ClassVar[str]
    file: ClassVar[str]
    packages: ClassVar[tuple[str, ...]] = ()
    rounding_packages: ClassVar[tuple[str, ...]] = ()
    extra: ClassVar[str] = "export"
    calibrates: ClassVar[bool] = False
    most_difference: ClassVar[float] = 1e-4
    quantise: str | None = None
    """What the network is quantised to, e.g. "int8"; it is then judged by its accuracy, not by `most_difference`."""

    def write(self, exportable: Exportable, folder: str) -> dict[str, Any]:
        """Write the network into a local folder, and return the facts that `open` needs, as JSON values.

        Raises:
            ConfigError: it cannot be written in this format; the text says why, and which format can.
        """
        raise NotImplementedError

    @classmethod
    def open(cls, folder: str, facts: Mapping[str, Any], *, threads: int | None = None) -> Network:
        """Return a function that runs the network that was written.

        Args:
            folder: local.
            facts: what `write` returned, plus `inputs` and `outputs`: their names in order.
            threads: CPU threads for one batch; None for the default of the library.

        Raises:
            OSError: the file is damaged.
        """
        raise NotImplementedError

    @classmethod
    def keeps_rows_apart(cls, facts: Mapping[str, Any]) -> bool:
        """Return whether the outputs of a row do not depend on the other rows of its batch; `facts` is from `write`."""
        del facts
        return True

    @classmethod
    def missing(cls, *, rounds: bool = False) -> list[Fault]:
        """Return a fault that names missing packages; with `rounds` also those that quantise to 8 bits."""
        wanted = (*cls.packages, *(cls.rounding_packages if rounds else ()))
        lacking = [package for package in wanted if find_spec(package) is None]
        problem = f"needs {' and '.join(lacking)}, which this environment lacks."
        return [Fault(f"export_{cls.name}", problem, f"Run: pip install 'xdpx[{cls.extra}]'.")] if lacking else []


def format_named(name: str) -> type[Format]:
    """Import and return the format of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in FORMATS:
        raise ConfigError(THIS_RUN, [unknown_name("format", name, [*FORMATS])])
    module, _, kind = FORMATS[name].partition(":")
    found: type[Format] = getattr(import_module(module), kind)
    return found


def refusal(what: str, problem: str, remedy: str = "Export another model.") -> ConfigError:
    """Return the error that says why a network cannot be exported."""
    return ConfigError(THIS_RUN, [Fault("model", f"{what} {problem}.", remedy)])
