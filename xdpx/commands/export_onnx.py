"""Write a trained network as ONNX, which many runtimes read; say how large and how fast it is.

Usage: x-script export_onnx save_dir=... out_dir=... [key=value ...] [--dry]

As `x-script export_torchscript`, with model.onnx in place of model.pth: rows and lengths are free, and the inputs have
the names that are printed. Time is that of onnxruntime on one thread, text by text. It needs
`pip install 'xdpx[export]'`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdpx.commands.exports import ExportCommand, ExportParameters

NAME = "export_onnx"


class ExportOnnx(ExportCommand):
    """Write a trained network as ONNX."""

    format_name: ClassVar[str] = "onnx"

    class Parameters(ExportParameters):
        """The keys of `x-script export_onnx`."""


def main(argv: Sequence[str]) -> int:
    """Run it for every run of a config."""
    from xdpx.commands.script_arguments import run_config

    return run_config(NAME, argv)
