"""Export a trained network as TorchScript, which runs without Python; print its size and speed.

Usage: x-script export_torchscript save_dir=... out_dir=... [key=value ...] [--dry]

The keys name a run as for x-eval. out_dir gets model.pth (TorchScript: the inputs in the order that is printed ->
logits) and everything needed to read raw text: vocab.txt, labels.txt, export.json and more. The script fails if the
outputs differ from the run's on real rows, or on empty, very long and odd ones. `load_run` opens the folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from xdpx.commands.exports import ExportCommand, ExportParameters

NAME = "export_torchscript"


class ExportTorchscript(ExportCommand):
    """Export a trained network as TorchScript."""

    format_name: ClassVar[str] = "torchscript"

    class Parameters(ExportParameters):
        """The keys of `x-script export_torchscript`."""


def main(argv: Sequence[str]) -> int:
    """Run the script for every run of a config."""
    from xdpx.commands.script_arguments import run_config

    return run_config(NAME, argv)
