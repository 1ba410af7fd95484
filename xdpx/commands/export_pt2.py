"""Export a trained network as a torch.export program; with compile, also as machine code by AOTInductor.

Usage: x-script export_pt2 save_dir=... out_dir=... [compile=true] [key=value ...] [--dry]

As `x-script export_torchscript`, with model.pt2 in place of model.pth: `torch.export.load` opens it. compile adds
model.aoti.pt2, which C++ runs without Python, on this kind of CPU; it needs a C++ compiler, and takes a minute.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from xdpx.commands.exports import ExportCommand, ExportParameters
from xdpx.config.faults import Fault
from xdpx.config.parameters import param

if TYPE_CHECKING:
    from xdpx.inference.formats import Format

NAME = "export_pt2"


class ExportPt2(ExportCommand):
    """Export a trained network as a torch.export program."""

    format_name: ClassVar[str] = "pt2"

    class Parameters(ExportParameters):
        """The keys of `x-script export_pt2`."""

        compile: bool = param(False, doc="Add model.aoti.pt2: machine code, by AOTInductor and a C++ compiler.")

    def format(self) -> Format:
        """Return the format, with AOTInductor if chosen."""
        from xdpx.inference.saved_program import ProgramFormat

        return ProgramFormat(compiled=self.parameters.compile)

    def check(self) -> list[Fault]:
        """Return the faults that can be found before the model is built, including a missing C++ compiler."""
        from xdpx.inference.saved_program import without_compiler

        return [*super().check(), *(without_compiler() if self.parameters.compile else [])]


def main(argv: Sequence[str]) -> int:
    """Run the script for every run of a config."""
    from xdpx.commands.script_arguments import run_config

    return run_config(NAME, argv)
