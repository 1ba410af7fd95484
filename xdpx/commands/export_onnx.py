"""Write a trained network as ONNX, which many runtimes read; say how large and how fast it is.

Usage: x-script export_onnx CONFIG [key=value ...] [--dry]

As `x-script export_torchscript`, with model.onnx in place of model.pth: rows and lengths are free, and the inputs have
the names that are printed. The script stops when onnxruntime gives other logits than the network, for short and long
texts. Time is that of onnxruntime on one thread, text by text. It needs `pip install 'xdpx[export]'`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from xdpx.commands.export_torchscript import ExportTorchscript
from xdpx.config.faults import Fault
from xdpx.config.parameters import param
from xdpx.inference.plan import InferenceParameters

if TYPE_CHECKING:
    from torch import nn

NAME = "export_onnx"
PACKAGES = ("onnx", "onnxruntime")


class ExportOnnx(ExportTorchscript):
    """Write a trained network as ONNX."""

    file: ClassVar[str] = "model.onnx"

    class Parameters(InferenceParameters):
        """The keys of `x-script export_onnx`."""

        out_dir: str = param(doc="Folder for model.onnx, vocab.txt, labels.txt and inputs.json; theirs are replaced.")

    def check(self) -> list[Fault]:
        """Return what can be seen to be wrong, and which packages are missing, before the model is built."""
        missing = [package for package in PACKAGES if find_spec(package) is None]
        problem = f"needs {' and '.join(missing)}, which this environment lacks."
        packages = [Fault(NAME, problem, "Run: pip install 'xdpx[export]'.")] if missing else []
        return [*packages, *super().check()]

    def packed(self, traced: nn.Module, batches: Sequence[Any]) -> tuple[bytes, Any]:
        """Return the file of a traced network, and what runs it."""
        from xdpx.inference import onnx_file

        content = onnx_file.content_of(traced, batches)
        return content, onnx_file.OnnxNetwork(content)


def main(argv: Sequence[str]) -> int:
    """Run it for every run of a config."""
    from xdpx.commands.script_arguments import run_config

    return run_config(NAME, argv)
