"""Export a trained network for OpenVINO, in full precision or 8 bits; print its size and speed.

Usage: x-script export_openvino save_dir=... out_dir=... [quantise=int8] [key=value ...] [--dry]

As `x-script export_onnx`, with model.xml and model.bin. With quantise=int8 the ranges are calibrated on training rows,
and scores and time before and after are printed. It needs `pip install 'xdpx[openvino]'`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from xdpx.commands.exports import QuantisingCommand, QuantisingParameters

if TYPE_CHECKING:
    from xdpx.inference.formats import Format

NAME = "export_openvino"


class ExportOpenVino(QuantisingCommand):
    """Export a trained network for OpenVINO."""

    format_name: ClassVar[str] = "openvino"

    class Parameters(QuantisingParameters):
        """The keys of `x-script export_openvino`."""

    def format(self) -> Format:
        """Return the format with the quantisation chosen."""
        from xdpx.inference.openvino_file import OpenVinoFormat

        return OpenVinoFormat(quantise=self.parameters.quantise)


def main(argv: Sequence[str]) -> int:
    """Run the script for every run of a config."""
    from xdpx.commands.script_arguments import run_config

    return run_config(NAME, argv)
