"""The formats in which a trained network leaves: one table, and what one file must be able to do to stand in it.

A new format is one file with a `Format` and its line in `FORMATS`. `exporting.py` does all the rest: the folder, the
comparison with the trained model, what lies beside the network. `exported.py` runs it again.
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
"""Name of each format -> where it is written and opened."""

Inputs = Mapping[str, Any]
"""The arrays that a network reads, by name: a processor's `net_input`, as tensors."""
Network = Callable[[Mapping[str, Any]], "Mapping[str, NDArray[Any]]"]
"""What runs a file: the inputs of a batch by name, numpy arrays -> its outputs by name."""


@dataclass(frozen=True)
class Exportable:
    """A trained network, ready to be written, and what it was trained with.

    Attributes:
        network: takes the tensors of `inputs` in that order, gives those of `outputs`: one tensor, or a tuple of them.
            On the CPU, in evaluation mode, without gradients.
        inputs: their names, in order.
        outputs: their names, in order; "logits" alone for all but networks that give several.
        batches: inputs of several shapes, as tensors. A format may follow the first through the network.
        plan: how the run was trained and how raw text is read; where the vocabulary and the labels lie.
        processor: collates batches; it knows the vocabulary.
        labels: names of the classes, None where there are none.
        loss: makes probabilities of the outputs.
        model: the network as it was trained, which takes the inputs by name.
        form: names of all that it gives, in order, None for what is not there.
        calibration: inputs of real rows, of training where those are there, to learn ranges from.
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
        """Return one of the batches as the network takes it."""
        return tuple(self.batches[index][name] for name in self.inputs)


class Format:
    """One way for a network to leave: how it is written, and how what was written is opened again.

    What a user may choose is given to its constructor.

    Attributes:
        name: its key in `FORMATS`.
        file: name of what it writes, which a user hands to another program: a file, or a folder.
        packages: what must be importable to write it, and to open it again.
        rounding_packages: what must be importable beside them to round to 8 bits.
        extra: of this package, that installs all of them.
        most_difference: between one of its outputs x and that of the trained network, as a share of 1 + |x|.
    """

    name: ClassVar[str]
    file: ClassVar[str]
    packages: ClassVar[tuple[str, ...]] = ()
    rounding_packages: ClassVar[tuple[str, ...]] = ()
    extra: ClassVar[str] = "export"
    most_difference: ClassVar[float] = 1e-4
    quantise: str | None = None
    """What its numbers are rounded to, such as "int8": then it is accuracy that is compared."""

    def write(self, exportable: Exportable, folder: str) -> dict[str, Any]:
        """Write the network into a local folder, and return what JSON can hold and `open` is to know.

        Raises:
            ConfigError: it cannot be written in this format; the text says why, and what can.
        """
        raise NotImplementedError

    @classmethod
    def open(cls, folder: str, facts: Mapping[str, Any], *, threads: int | None = None) -> Network:
        """Return what runs the network that was written.

        Args:
            folder: local.
            facts: what `write` returned, with `inputs` and `outputs`, their names in order.
            threads: of the CPU, for one batch; None for as many as the library takes.

        Raises:
            OSError: it is damaged.
        """
        raise NotImplementedError

    @classmethod
    def keeps_rows_apart(cls, facts: Mapping[str, Any]) -> bool:
        """Tell whether rows of a batch are computed apart from each other, of what `write` returned: mostly so."""
        del facts
        return True

    @classmethod
    def missing(cls, *, rounds: bool = False) -> list[Fault]:
        """Name the packages that this environment lacks; with `rounds` also those that round to 8 bits."""
        wanted = (*cls.packages, *(cls.rounding_packages if rounds else ()))
        lacking = [package for package in wanted if find_spec(package) is None]
        problem = f"needs {' and '.join(lacking)}, which this environment lacks."
        return [Fault(f"export_{cls.name}", problem, f"Run: pip install 'xdpx[{cls.extra}]'.")] if lacking else []


def format_named(name: str) -> type[Format]:
    """Return the format of that name, imported only now.

    Raises:
        ConfigError: there is none.
    """
    if name not in FORMATS:
        raise ConfigError(THIS_RUN, [unknown_name("format", name, [*FORMATS])])
    module, _, kind = FORMATS[name].partition(":")
    found: type[Format] = getattr(import_module(module), kind)
    return found


def refusal(what: str, problem: str, remedy: str = "Export another model.") -> ConfigError:
    """Say why a network cannot be exported."""
    return ConfigError(THIS_RUN, [Fault("model", f"{what} {problem}.", remedy)])


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
