"""Export to OpenVINO, for Intel and AMD processors: full precision, or 8 bits."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from xdpx.config.faults import first_line
from xdpx.inference.formats import Exportable, Format, Network, refusal
from xdpx.inference.onnx_file import content_and_answers, content_of
from xdpx.utils import io

if TYPE_CHECKING:
    from numpy.typing import NDArray


class OpenVinoFormat(Format):
    """OpenVINO's own files: model.xml, and its weights in model.bin.

    Args:
        quantise: "int8" for 8 bits; ranges of the activations are calibrated on training rows, and then fixed.
    """

    name: ClassVar[str] = "openvino"
    file: ClassVar[str] = "model.xml"
    packages: ClassVar[tuple[str, ...]] = ("onnx", "openvino")
    rounding_packages: ClassVar[tuple[str, ...]] = ("nncf",)
    extra: ClassVar[str] = "openvino"
    calibrates: ClassVar[bool] = True

    def __init__(self, *, quantise: str | None = None) -> None:
        self.quantise = quantise

    def write(self, exportable: Exportable, folder: str) -> dict[str, Any]:
        """Write the traced network, by way of ONNX; with its answers as there, but in 8 bits they would be rounded."""
        import openvino

        content, answers = (content_of(exportable), []) if self.quantise else content_and_answers(exportable)
        try:
            model = openvino.Core().read_model(content)
            if self.quantise:
                model = _calibrated(model, exportable)
            openvino.save_model(model, io.join(folder, self.file), compress_to_fp16=False)
        except RuntimeError as error:
            what = type(exportable.model).__name__
            raise refusal(what, f"cannot be read by OpenVINO: {first_line(error).rstrip('.')}") from error
        return {"quantised": self.quantise, "answers": answers}

    @classmethod
    def open(cls, folder: str, facts: Mapping[str, Any], *, threads: int | None = None) -> Network:
        """Return a function that runs the files with OpenVINO, on the CPU."""
        import openvino

        # Otherwise processors with bfloat16 compute in it, and outputs differ by 1 %.
        how: dict[str, Any] = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
        # Not pinned to cores: several networks side by side would all be pinned to the first cores.
        how |= {"INFERENCE_NUM_THREADS": threads, "ENABLE_CPU_PINNING": False} if threads else {}
        try:
            compiled = openvino.Core().compile_model(io.join(folder, cls.file), "CPU", how)
        except RuntimeError as error:
            raise OSError(f"{io.join(folder, cls.file)} cannot be opened: {first_line(error)}") from error
        known = set(facts["inputs"])  # the file lacks inputs without effect; each may have several names
        inputs = {name: each for each in compiled.inputs for name in each.get_names() & known}
        outputs = [*facts["outputs"], *facts.get("answers", ())]

        def run(given: Mapping[str, Any]) -> Mapping[str, NDArray[Any]]:
            found = compiled.create_infer_request().infer({port: given[name] for name, port in inputs.items()})
            return {name: found[name].copy() for name in outputs}

        return run


def _calibrated(model: Any, exportable: Exportable) -> Any:
    """Return the model in 8 bits, with activation ranges calibrated on real rows.

    Source: NNCF's post-training quantisation; in transformers the inputs of softmax and norms keep full precision.
    """
    import nncf

    rows = [{name: batch[name].numpy() for name in exportable.inputs} for batch in exportable.calibration]
    ports = {name: each.get_any_name() for each in model.inputs for name in each.get_names()}
    data = nncf.Dataset([{ports[name]: value for name, value in row.items() if name in ports} for row in rows])
    logging.getLogger("nncf").setLevel(logging.ERROR)
    return nncf.quantize(model, data, model_type=nncf.ModelType.TRANSFORMER, subset_size=len(rows))
