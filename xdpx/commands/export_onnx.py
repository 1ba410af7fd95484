"""Export a trained network as ONNX, which many runtimes read; print its size and speed.

Usage: x-script export_onnx save_dir=... out_dir=... [quantise=int8] [key=value ...] [--dry]

As `x-script export_torchscript`, with model.onnx in place of model.pth: rows and lengths are dynamic, and the inputs
have the names that are printed. Time is measured with onnxruntime on one thread, one text at a time. With quantise=int8
weights have 8 bits, and scores and time before and after are printed. It needs `pip install 'xdpx[export]'`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from xdpx.commands.exports import QuantisingCommand, QuantisingParameters

if TYPE_CHECKING:
    from xdpx.inference.formats import Format

NAME = "export_onnx"


class ExportOnnx(QuantisingCommand):
    """Export a trained network as ONNX."""

    format_name: ClassVar[str] = "onnx"

    class Parameters(QuantisingParameters):
        """The keys of `x-script export_onnx`."""

    def format(self) -> Format:
        """Return the format with the quantisation chosen."""
        from xdpx.inference.onnx_file import OnnxFormat

        return OnnxFormat(quantise=self.parameters.quantise)


def main(argv: Sequence[str]) -> int:
    """Run the script for every run of a config."""
    from xdpx.commands.script_arguments import run_config

    return run_config(NAME, argv)
