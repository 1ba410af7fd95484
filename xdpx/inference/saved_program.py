"""Export to a torch.export program, which PyTorch loads without our code, and can compile for C++."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any, ClassVar

from xdpx.config.faults import ConfigError, Fault, first_line
from xdpx.inference.formats import Exportable, Format, Network, refusal
from xdpx.inference.tracing import in_torch, only_errors_of, work_out_weights
from xdpx.utils import commit, io

if TYPE_CHECKING:
    from torch.export import ExportedProgram

COMPILED = "model.aoti.pt2"
"""The AOTInductor package of the program: machine code for this kind of processor."""


class ProgramFormat(Format):
    """A saved program of torch.export and, optionally, its AOTInductor package.

    Args:
        compiled: also write the package, which needs a C++ compiler. `open` does not run it: it is machine code.
    """

    name: ClassVar[str] = "pt2"
    file: ClassVar[str] = "model.pt2"

    def __init__(self, *, compiled: bool = False) -> None:
        self._compiled = compiled

    def write(self, exportable: Exportable, folder: str) -> dict[str, Any]:
        """Write the program, with a free number of rows and free lengths."""
        import torch

        work_out_weights(exportable.network)
        what, example = type(exportable.model).__name__, exportable.example()
        free = tuple(dict.fromkeys(range(each.dim()), torch.export.Dim.AUTO) for each in example)
        buffer = BytesIO()  # torch ends the process if the disk is full
        with _quiet():
            try:
                program = torch.export.export(exportable.network, example, dynamic_shapes=(free,))
                refuse_fixed(fixed_axes(program, exportable), exportable)
                torch.export.save(program, buffer)
            except ConfigError:
                raise
            except Exception as error:  # torch has dozens of error classes for this
                problem = f"cannot be followed by torch.export: {first_line(error).rstrip('.')}"
                raise refusal(what, problem, "Use export_torchscript or export_onnx.") from error
            commit.write_bytes(io.join(folder, self.file), buffer.getvalue())
            if self._compiled:
                self._compile(program, exportable, folder)
        return {"compiled": COMPILED if self._compiled else None}

    def _compile(self, program: Any, exportable: Exportable, folder: str) -> None:
        """Write the package, and compare its outputs with the trained network for inputs of several shapes."""
        from torch._inductor import aoti_compile_and_package, aoti_load_package

        from xdpx.inference.exporting import compared_outputs

        what, path = type(exportable.model).__name__, io.join(folder, COMPILED)
        try:
            aoti_compile_and_package(program, package_path=path)
            facts = {"inputs": exportable.inputs, "outputs": exportable.outputs}
            compared_outputs(
                exportable, in_torch(aoti_load_package(path), facts, None), exportable.batches, self.most_difference
            )
        except ConfigError:
            raise
        except Exception as error:  # the C++ compiler has its own, too
            raise refusal(what, f"cannot be compiled: {first_line(error).rstrip('.')}", "Leave out compile.") from error

    @classmethod
    def open(cls, folder: str, facts: Mapping[str, Any], *, threads: int | None = None) -> Network:
        """Return a function that runs the program in this process."""
        from xdpx.checkpoints.trusted import load_program

        with _quiet():
            return in_torch(load_program(io.join(folder, cls.file)), facts, threads)


def fixed_axes(program: ExportedProgram, exportable: Exportable) -> list[str]:
    """Return the input axes that torch.export fixed although the batches differ in them, as text."""
    shaped = {node.name: node.meta["val"].shape for node in program.graph.nodes if node.op == "placeholder"}
    given = zip(exportable.inputs, program.graph_signature.user_inputs, strict=True)
    sizes = [(name, axis, _number(size)) for name, place in given for axis, size in enumerate(shaped[place])]
    return [
        f"axis {axis} of {name} at {size}"
        for name, axis, size in sizes
        if size is not None and any(batch[name].shape[axis] != size for batch in exportable.batches)
    ]


def _number(size: Any) -> int | None:
    """Return the size of an axis as a number; None if it is free."""
    return size if isinstance(size, int) else size.node.maybe_as_int()


def refuse_fixed(axes: Sequence[str], exportable: Exportable) -> None:
    """Raise ConfigError if a program would be valid for some shapes only."""
    if axes:
        problem = f"has steps that torch.export unrolls, which fixes {', '.join(axes)}"
        raise refusal(type(exportable.model).__name__, problem, "Use export_torchscript or export_onnx.")


def without_compiler() -> list[Fault]:
    """Return a fault if there is no C++ compiler here."""
    from shutil import which

    if any(map(which, ("g++", "clang++", "c++"))):
        return []
    return [Fault("compile", "is true, but there is no C++ compiler here.", "Install g++, or leave it out.")]


@contextmanager
def _quiet() -> Generator[None]:
    """Silence torch's warnings about its own formats."""
    with warnings.catch_warnings(), only_errors_of("torch"):
        warnings.simplefilter("ignore")
        yield
