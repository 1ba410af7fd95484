"""Export to a transformers folder, for `from_pretrained`, `pipeline` and the Hub."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from xdpx.config.faults import first_line
from xdpx.inference.formats import Exportable, Format, Network, refusal
from xdpx.inference.transformers_folder import (
    THRESHOLD,
    decides_otherwise,
    own_reading,
    problem_of,
    texts_of,
    tokenizer_of,
)
from xdpx.logger import log
from xdpx.utils import commit, io

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from xdpx.models.pytorch.library_form import Form

SaveWeights = Callable[[str, Mapping[str, Any]], None]
OTHERS = "export_onnx and export_torchscript write any network."


class TransformersFormat(Format):
    """A folder with the encoder and its head; with the encoder alone if transformers lacks the head.

    Args:
        save_weights: writes tensors into a folder as transformers does; None if folders are only opened.
    """

    name: ClassVar[str] = "hf"
    file: ClassVar[str] = "model.safetensors"
    packages: ClassVar[tuple[str, ...]] = ("transformers",)

    def __init__(self, save_weights: SaveWeights | None = None) -> None:
        self._save_weights = save_weights

    def write(self, exportable: Exportable, folder: str) -> dict[str, Any]:
        """Write weights under the library's names, config.json with the labels, and the tokenizer."""
        plan, processor = exportable.plan, exportable.processor
        form, reason = _form_of(exportable)
        if reason:
            log.warning(f"only the encoder is written, for AutoModel: {reason}")
        tokenizer = tokenizer_of(plan.prepro, plan.resource_folder)
        texts, without = texts_of(form, processor, tokenizer)
        if without:
            log.warning(f"without a tokenizer: {without}. Give the folder one, or ids.")
        elif form.kind and (own := own_reading(plan.prepro, tokenizer, processor)):
            log.warning(own)
        if form.kind and decides_otherwise(exportable.loss):
            log.warning(THRESHOLD)
        if self._save_weights is None:
            raise ValueError("this format was made to be opened only: this is a bug.")
        self._save_weights(folder, form.weights(exportable.model.state_dict()))
        for name, text in texts.items():
            commit.write_text(io.join(folder, name), text)
        found = exportable.model(**exportable.batches[0])
        one_number = len(exportable.outputs) == 1 and getattr(found, "dim", lambda: 2)() == 1
        return {"kind": form.kind, "without_head": reason, "one_number": one_number}

    @classmethod
    def open(cls, folder: str, facts: Mapping[str, Any], *, threads: int | None = None) -> Network:
        """Return a function that runs the network of transformers in this process."""
        import torch
        import transformers

        kind = facts["kind"]
        if not kind:
            raise refusal(f"'{folder}'", f"contains only the encoder ({facts['without_head']})", OTHERS)
        auto: Any = getattr(transformers, f"AutoModelFor{kind}")
        try:
            network = auto.from_pretrained(folder, local_files_only=True, trust_remote_code=False).eval()
        except Exception as error:
            raise OSError(f"{folder} cannot be opened by transformers: {first_line(error)}") from error

        def run(given: Mapping[str, Any]) -> Mapping[str, NDArray[Any]]:
            before = torch.get_num_threads()
            torch.set_num_threads(threads or before)
            try:
                with torch.no_grad():
                    return {name: each.numpy() for name, each in _outputs(network, given, facts).items()}
            finally:
                torch.set_num_threads(before)

        return run


def _outputs(network: Any, given: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs of our network, computed from the logits of the transformers network."""
    import torch

    from xdpx.models.pytorch.encoders import has_segments

    tensors = {name: torch.from_numpy(value) for name, value in given.items()}
    read = {"input_ids": tensors["input_ids"]}
    if "token_type_ids" in tensors and has_segments(network.config):
        read["token_type_ids"] = tensors["token_type_ids"]
    logits = network(**read, attention_mask=tensors["attention_mask"].long()).logits.float()
    if facts["kind"] != "TokenClassification":
        return {facts["outputs"][0]: logits.squeeze(-1) if facts["one_number"] else logits}
    starts = tensors["word_starts"].unsqueeze(-1).expand(-1, -1, logits.shape[-1])
    return {facts["outputs"][0]: logits.gather(1, starts) * tensors["word_mask"].unsqueeze(-1)}


def _form_of(exportable: Exportable) -> tuple[Form, str]:
    """Return the network in the form of transformers, and why the head is left out; "" if it is not.

    Raises:
        ConfigError: the network cannot be expressed in transformers.
    """
    from xdpx.models.pytorch.library_form import Inexpressible, differs, form_of

    model = exportable.model
    try:
        form = form_of(model, problem_of(exportable.loss), exportable.labels)
    except Inexpressible as error:
        raise refusal("The network", f"cannot be exported: {error}", OTHERS) from error
    if not form.kind:
        return form, form.reason
    network = form.build()
    network.load_state_dict(form.weights(model.state_dict()))
    trouble = differs(form, network, model, exportable.batches)
    return (form_of(model, None, None), trouble) if trouble else (form, "")
