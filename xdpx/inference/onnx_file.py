"""Export to ONNX: one file for many runtimes, with a free number of rows and free lengths."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from io import BytesIO
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

from xdpx.config.faults import ConfigError, first_line
from xdpx.inference.answering import ANSWERS, answering, answers_fully
from xdpx.inference.formats import Exportable, Format, Network, refusal
from xdpx.inference.tracing import only_errors_of, traced
from xdpx.logger import log
from xdpx.utils import commit, io

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Value

OPSET = 18
"""Version of the operator set: the oldest with all operators we need, so that old runtimes can read the file."""
SLOWER = ["SkipLayerNormFusion"]
"""Optimisations of onnxruntime that are turned off: on a CPU its fused sum and layer norm takes three times as long as
the two in sequence, a seventh of the total time of MiniLM in 8 bits."""
ATTENTION = "aten::scaled_dot_product_attention"


class OnnxFormat(Format):
    """ONNX, run by onnxruntime.

    Args:
        quantise: "int8" for 8-bit weights; activations are quantised at run time by their own range (dynamic).
    """

    name: ClassVar[str] = "onnx"
    file: ClassVar[str] = "model.onnx"
    packages: ClassVar[tuple[str, ...]] = ("onnx", "onnxruntime")

    def __init__(self, *, quantise: str | None = None) -> None:
        self.quantise = quantise

    def write(self, exportable: Exportable, folder: str) -> dict[str, Any]:
        """Write the traced network; with its answers if these are all that the loss predicts."""
        content, answers = content_and_answers(exportable)
        commit.write_bytes(io.join(folder, self.file), _rounded(content) if self.quantise else content)
        return {"opset": OPSET, "quantised": self.quantise, "answers": answers}

    @classmethod
    def open(cls, folder: str, facts: Mapping[str, Any], *, threads: int | None = None) -> Network:
        """Return a function that runs the file with onnxruntime, on the CPU."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads or 0, 1
        try:
            session = onnxruntime.InferenceSession(
                io.join(folder, cls.file), options, providers=["CPUExecutionProvider"], disabled_optimizers=SLOWER
            )
        except Exception as error:  # onnxruntime has many error classes, all from C++
            raise OSError(f"{io.join(folder, cls.file)} cannot be opened: {first_line(error)}") from error
        inputs = [each.name for each in session.get_inputs()]  # without inputs that do not affect the outputs
        outputs = [*facts["outputs"], *facts.get("answers", ())]

        def run(given: Mapping[str, Any]) -> Mapping[str, NDArray[Any]]:
            return dict(zip(outputs, session.run(outputs, {name: given[name] for name in inputs}), strict=True))

        return run

    @classmethod
    def keeps_rows_apart(cls, facts: Mapping[str, Any]) -> bool:
        """Return False for 8 bits: activation ranges are taken over all rows of a batch."""
        return not facts.get("quantised")


def content_and_answers(exportable: Exportable) -> tuple[bytes, list[str]]:
    """Return a network as the bytes of an ONNX file, and which `ANSWERS` it returns beside its outputs: all, or none.

    Raises:
        ConfigError: as `content_of`.
    """
    if answers_fully(exportable):
        try:
            return content_of(answering(exportable)), list(ANSWERS)
        except ConfigError as error:
            log.info(f"probabilities are omitted: {error}")
    return content_of(exportable), []


def content_of(exportable: Exportable) -> bytes:
    """Return a network as the bytes of an ONNX file, with named inputs and outputs.

    Raises:
        ConfigError: the network uses something that ONNX lacks, or cannot be traced.
    """
    import torch

    inputs = dict(zip(exportable.inputs, exportable.example(), strict=True))
    free = {name: {0: "rows"} | {dim: f"{name}_{dim}" for dim in range(1, each.dim())} for name, each in inputs.items()}
    by_row = tuple(exportable.outputs[1:]) in {(), ANSWERS}  # of several outputs, some may have no axis of rows
    free |= {name: {0: "rows"} for name in exportable.outputs if by_row}
    buffer = BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch recommends its newer exporter, which fixes lengths that are halved
        try:
            # Not with torch.export, which takes a hundred times as long.
            with short_attention(OPSET):
                torch.onnx.export(
                    traced(exportable), tuple(inputs.values()), buffer,
                    dynamo=False, opset_version=OPSET, input_names=list(inputs), output_names=list(exportable.outputs),
                    dynamic_axes=free,
                )  # fmt: skip
        except ConfigError:  # a ValueError itself: it could not be traced
            raise
        except (RuntimeError, ValueError) as error:
            what = type(exportable.model).__name__
            raise refusal(what, f"cannot be written as ONNX: {first_line(error).rstrip('.')}") from error
    return buffer.getvalue()


def _rounded(content: bytes) -> bytes:
    """Return an ONNX file with 8-bit weights in matrix products and embeddings, one range per output channel."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with TemporaryDirectory() as folder, only_errors_of("root"):  # it advises a step of its own
        path = io.join(folder, "int8.onnx")
        quantize_dynamic(
            onnx.load_from_string(content), path, per_channel=True, weight_type=QuantType.QInt8,
            op_types_to_quantize=["MatMul", "Gemm", "Gather"],
        )  # fmt: skip
        with io.open(path, "rb") as file:
            return bytes(file.read())


@contextmanager
def short_attention(opset: int) -> Generator[None]:
    """Within the block, export attention with a boolean mask in fewer passes over the weights (B, H, T, T).

    torch scales queries and keys separately, and searches all weights for NaN, which marks rows with no visible key.
    Here such a row is found from the mask, and its output is set to 0: MiniLM in 8 bits takes 14 % less time.
    """
    from torch.onnx import utils

    utils.register_custom_op_symbolic(ATTENTION, _attention, opset)
    try:
        yield
    finally:
        utils.unregister_custom_op_symbolic(ATTENTION, opset)


def _attention(g: Any, query: Value, key: Value, value: Value, mask: Value, *more: Value) -> Any:
    """Return softmax(scale * query key' + bias) value; outside the mask the bias is the lowest float32."""
    import torch
    from torch.onnx import symbolic_helper, symbolic_opset14

    _, is_causal, scale, grouped = more
    is_plain = not any(symbolic_helper._maybe_get_const(each, "b") for each in (is_causal, grouped))
    is_seen = not symbolic_helper._is_none(mask) and mask.type().scalarType() == "Bool"
    if not (is_plain and is_seen) or symbolic_helper._is_none(scale):
        return symbolic_opset14.scaled_dot_product_attention(g, query, key, value, mask, *more)

    def number(value: float) -> Any:
        return g.op("Constant", value_t=torch.tensor(value))

    rank = symbolic_helper._get_tensor_rank(key) or 4
    turned = g.op("Transpose", key, perm_i=[*range(rank - 2), rank - 1, rank - 2])
    scores = g.op("Mul", g.op("MatMul", query, turned), g.op("Cast", scale, to_i=1))
    bias = g.op("Where", mask, number(0.0), number(torch.finfo(torch.float32).min))
    found = g.op("MatMul", g.op("Softmax", g.op("Add", scores, bias), axis_i=-1), value)
    seen = g.op("Cast", mask, to_i=1)
    return g.op("Mul", found, g.op("ReduceMax", seen, g.op("Constant", value_t=torch.tensor([-1])), keepdims_i=1))
