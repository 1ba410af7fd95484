"""Networks in files of other programs: for evaluation, prediction, and training if possible. B texts, C classes."""

from __future__ import annotations

import json
import warnings
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xdpx.config import extras
from xdpx.config import parameters as declare
from xdpx.config.faults import refusal
from xdpx.models.pytorch.base import Model
from xdpx.models.pytorch.parameters import ModelParameters
from xdpx.utils import io

SCRIPT = "model.pth"
"""File name of the network in an export of x-script export_torchscript."""
INPUTS = "inputs.json"
"""File beside it with the order of its inputs."""
SMALLEST = 1e-12

GROUP = "file"


class Deployed(Model):
    """A network in a file that returns logits, or probabilities, whose logarithm is taken."""

    class Parameters(ModelParameters):
        """Keys of every network in a file of another program."""

        model_path: str = declare.param(doc="Path of the network: a file, or its folder.", group=GROUP)
        output_kind: Literal["logits", "probabilities"] = declare.param(
            "logits", doc="Output of the network for each class.", group=GROUP
        )

    parameters_used: Any

    def as_logits(self, found: Tensor) -> Tensor:
        """Return logits (B, C)."""
        if self.parameters_used.output_kind == "logits":
            return found
        return found.clamp(min=SMALLEST).log()


class TorchScriptModel(Deployed):
    """The export of x-script export_torchscript, or any TorchScript that maps the arrays of a batch to logits.

    It can be used in x-eval and x-pred (config:) and trained; it has no dropout.

    Source: DeVito et al., "Using Python for Model Inference in Deep Learning", arXiv 2104.00254, on TorchScript.
    """

    class Parameters(Deployed.Parameters):
        """Keys of `torchscript`."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        path = parameters.model_path
        path = io.join(path, SCRIPT) if io.isdir(path) else path
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch recommends torch.export, of no use for an existing file
                self.network = torch.jit.load(io.local(path), map_location="cpu")  # type: ignore[no-untyped-call]
        except (RuntimeError, ValueError, OSError) as error:
            problem = f"is '{path}', which is not TorchScript: {str(error).strip().partition(chr(10))[0]}."
            remedy = "Name a file that x-script export_torchscript wrote."
            raise refusal("model_path", problem, remedy) from error
        self.inputs = _inputs_beside(path)
        for weight in self.parameters():
            weight.requires_grad_(weight.is_floating_point())

    def forward(self, **net_input: Tensor) -> Tensor:
        """Return logits (B, C).

        Raises:
            ConfigError: an input of the network is missing.
        """
        names = self.inputs or list(net_input)
        missing = [name for name in names if name not in net_input]
        if missing:
            problem = f"takes {', '.join(names)}, but the processor gives {', '.join(net_input)}."
            raise refusal("model_path", f"the network {problem}", "Preprocess as for its run.")
        return self.as_logits(self.network(*(net_input[name] for name in names)))


def _inputs_beside(path: str) -> list[str]:
    """Return the names of the inputs in order; empty if no file names them."""
    beside = io.join(io.parent(path), INPUTS)
    if not io.isfile(beside):
        return []
    with io.open(beside) as file:
        return [str(name) for name in json.load(file)["inputs"]]


class TFSavedModel(Deployed):
    """A SavedModel of TensorFlow, for evaluation and prediction.

    If a signature takes strings, it gets the text of each row, with tokens joined by spaces.

    Source: Olston et al., "TensorFlow-Serving: Flexible, High-Performance ML Serving", arXiv 1712.06139.
    """

    takes_noise = False

    class Parameters(Deployed.Parameters):
        """Keys of `savedmodel`."""

        signature_def_key: str = declare.param("serving_default", doc="Name of the signature to call.", group=GROUP)
        input_flags: dict[str, Any] = declare.param(
            {}, doc="Constant inputs, by their names in the signature: {is_training: false}.", group=GROUP
        )
        input_name_map: dict[str, str] = declare.param(
            {}, doc="Our names of inputs -> their names in the signature: {tokens: q1}; others are equal.", group=GROUP
        )
        output_name: str = declare.param(doc="Name of the output with logits or probabilities.", group=GROUP)
        data_dir: str | None = declare.param(
            None, doc="The folder that x-prepro wrote; its vocab.txt is used.", group=GROUP
        )

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        tensorflow = self._tensorflow = extras.tensorflow("model", "is 'savedmodel'")
        # Keep the loaded object, since a signature alone does not hold its variables.
        self._loaded = tensorflow.saved_model.load(io.local(parameters.model_path))
        signatures = self._loaded.signatures
        key = parameters.signature_def_key
        if key not in signatures:
            problem = f"is '{key}', but there are: {', '.join(signatures)}."
            raise refusal("signature_def_key", problem, "Choose one of these.")
        self._call = signatures[key]
        self._wanted = self._call.structured_input_signature[1]

    def forward(self, **net_input: Tensor) -> Tensor:
        """Return logits (B, C).

        Raises:
            ConfigError: an input or the output is missing.
        """
        known = self.parameters_used
        given = {known.input_name_map.get(name, name): value for name, value in net_input.items()}
        unknown = [name for name in self._wanted if name not in given and name not in known.input_flags]
        if unknown:
            problem = f"leaves {', '.join(unknown)} unset; the processor gives {', '.join(net_input)}."
            remedy = f"Map the names of one to those of the other: it takes {', '.join(self._wanted)}."
            raise refusal("input_name_map", problem, remedy)
        fed = {**known.input_flags, **{name: given[name] for name in self._wanted if name in given}}
        found = self._call(**{name: self._as_wanted(name, value) for name, value in fed.items()})
        if known.output_name not in found:
            problem = f"is '{known.output_name}', but it gives: {', '.join(found)}."
            raise refusal("output_name", problem, "Choose one of these.")
        device = next(iter(net_input.values())).device
        return self.as_logits(torch.from_numpy(np.array(found[known.output_name].numpy())).to(device))

    def _as_wanted(self, name: str, value: object) -> Any:
        """Return an input as a TensorFlow tensor, of the dtype in the signature."""
        kind = self._wanted[name].dtype if name in self._wanted else None
        if isinstance(value, Tensor):
            value = value.detach().cpu().numpy()
            if kind == self._tensorflow.string:
                value = self._texts(value)
            elif kind is not None:
                value = value.astype(kind.as_numpy_dtype)
        return self._tensorflow.constant(value, dtype=kind)

    def _texts(self, ids_BT: NDArray[Any]) -> list[str]:
        with io.open(io.join(self.parameters_used.data_dir or "", "vocab.txt"), encoding="utf-8") as file:
            words = file.read().split("\n")
        pad = words[0]
        return [" ".join(word for word in (words[index] for index in row) if word != pad) for row in ids_BT.tolist()]

    def parameter_groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """Raise ConfigError: it cannot be trained."""
        del learning_rate
        problem, remedy = "is 'savedmodel', which cannot be trained.", "Use x-eval or x-pred, with config: in theirs."
        raise refusal("model", problem, remedy)
