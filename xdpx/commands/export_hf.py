"""Export a trained encoder in the format of transformers: a folder for `from_pretrained`, `pipeline` and the Hub.

Usage: x-script export_hf save_dir=... out_dir=... [key=value ...] [--dry]

The keys name a run as for x-eval. out_dir gets model.safetensors, config.json with the labels, and the tokenizer. The
script fails if the network of transformers returns other logits than ours. A head that transformers does not have is
left out with a message; the folder then opens as AutoModel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from xdpx.commands.exports import ExportCommand, ExportParameters

if TYPE_CHECKING:
    from xdpx.inference.formats import Format

NAME = "export_hf"


class ExportHF(ExportCommand):
    """Export a trained encoder in the format of transformers."""

    format_name: ClassVar[str] = "hf"

    class Parameters(ExportParameters):
        """The keys of `x-script export_hf`."""

    def format(self) -> Format:
        """Return the format."""
        from xdpx.inference.transformers_format import TransformersFormat
        from xdpx.trainer.files.model_files import write_weights

        return TransformersFormat(write_weights)


def main(argv: Sequence[str]) -> int:
    """Run the script for every run of a config."""
    from xdpx.commands.script_arguments import run_config

    return run_config(NAME, argv)
