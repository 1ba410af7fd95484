"""A traced network as ONNX: one file for many runtimes, whose rows and lengths are free."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING

from xdpx.inference.tracing import Inputs, compare, first_line, refusal

if TYPE_CHECKING:
    from torch import Tensor, nn

OPSET = 18
"""Version of the operators: the oldest that has all we need, so that old runtimes read the file."""
LOGITS = "logits"


class OnnxNetwork:
    """Runs a file of ONNX by onnxruntime, on one thread of the CPU."""

    def __init__(self, content: bytes) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        self._names = [each.name for each in self._session.get_inputs()]

    def __call__(self, *inputs: Tensor) -> Tensor:
        """Return the logits of a batch, whose inputs come in their order."""
        import torch

        given = {name: each.numpy() for name, each in zip(self._names, inputs, strict=True)}
        return torch.from_numpy(self._session.run([LOGITS], given)[0])


def content_of(traced: nn.Module, batches: Sequence[Inputs]) -> bytes:
    """Return the file of a traced network: its inputs by name -> `logits`.

    Args:
        traced: as `tracing.trace` gives it.
        batches: of several shapes; the first is followed through the network, and onnxruntime must agree on all.

    Raises:
        ConfigError: the network does something that ONNX lacks, or the file gives other logits.
    """
    import torch

    inputs = batches[0]
    free = {name: {0: "rows"} | {dim: f"{name}_{dim}" for dim in range(1, each.dim())} for name, each in inputs.items()}
    buffer = BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch advises its newer exporter, which fixes lengths that are halved
        try:
            # Not by torch.export: it takes a hundred times as long.
            torch.onnx.export(
                traced, tuple(inputs.values()), buffer,  # type: ignore[arg-type]  # a buffer is taken, but not declared
                dynamo=False, opset_version=OPSET, input_names=list(inputs), output_names=[LOGITS],
                dynamic_axes={**free, LOGITS: {0: "rows"}},
            )  # fmt: skip
        except (RuntimeError, ValueError) as error:
            raise refusal("The network", f"cannot be written as ONNX: {first_line(error)}") from error
    expected = [traced(*each.values()) for each in batches]
    compare(OnnxNetwork(buffer.getvalue()), batches, expected, what="The file of ONNX")
    return buffer.getvalue()
