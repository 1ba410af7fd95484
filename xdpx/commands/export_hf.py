"""Write a trained encoder as transformers has it: a folder for `from_pretrained`, `pipeline` and the Hub.

Usage: x-script export_hf save_dir=... out_dir=... [key=value ...] [--dry]

The keys name a run as for x-eval. out_dir gets model.safetensors, config.json with the labels, and the tokenizer. The
script stops when the library's network would give other logits than ours. A head that transformers does not have is
left out, which is said: the folder then opens as AutoModel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xdpx.config.faults import ConfigError, Fault
from xdpx.config.loading import Run
from xdpx.config.parameters import param
from xdpx.inference.plan import InferenceParameters, make_plan
from xdpx.logger import log
from xdpx.utils import io

if TYPE_CHECKING:
    from xdpx.inference.predictor import Predictor
    from xdpx.models.pytorch.library_form import Form

NAME = "export_hf"
LENGTHS = ((12, 3, 7), (5, 5, 5, 5), (1,))


class ExportHF:
    """Write a trained encoder as transformers has it."""

    class Parameters(InferenceParameters):
        """The keys of `x-script export_hf`."""

        out_dir: str = param(doc="Folder to write: a new one, or an empty one.", path="new_directory")

    def __init__(self, run: Run) -> None:
        self.source = run.source
        self.parameters: ExportHF.Parameters = run.parameters("command")

    def check(self) -> list[Fault]:
        """Return what can be seen to be wrong before the model is built."""
        out_dir, found = self.parameters.out_dir, []
        if not io.is_writable(out_dir):
            found.append(Fault("out_dir", f"'{out_dir}' cannot be written.", "Choose another place."))
        elif io.isfile(out_dir) or (io.isdir(out_dir) and io.listdir(out_dir)):
            found.append(Fault("out_dir", f"'{out_dir}' holds something already.", "Choose a new folder."))
        try:
            make_plan(self.parameters, self.source)
        except ConfigError as error:
            found += error.faults
        return found

    def run(self) -> None:
        """Rename, compare and write."""
        from xdpx.checkpoints import publishing
        from xdpx.inference.predictor import Predictor
        from xdpx.inference.transformers_folder import THRESHOLD, decides_otherwise, texts_of, tokenizer_of
        from xdpx.trainer.files.model_files import write_weights
        from xdpx.utils.owners import new_owner_id

        plan = make_plan(self.parameters.model_copy(update={"engine": "pytorch", "mesh": None}), self.source)
        predictor = Predictor(plan, cuda=False, seed=self.parameters.seed)
        form = self._form(predictor)
        texts, without = texts_of(form, predictor.processor, tokenizer_of(plan.prepro, plan.resource_folder))
        if without:
            log.warning(f"without a tokenizer: {without}. Give the folder one, or ids.")
        if form.kind and decides_otherwise(predictor.task.loss):
            log.warning(THRESHOLD)
        parent, name, owner = (
            io.parent(io.abspath(self.parameters.out_dir)),
            io.name(self.parameters.out_dir),
            new_owner_id(),
        )
        staged = publishing.staging_of(parent, name, owner)
        io.makedirs(staged)
        try:
            write_weights(staged, form.weights(predictor.task.model.state_dict()))
            for file_name, text in texts.items():
                with io.open(io.join(staged, file_name), "w", encoding="utf-8") as file:
                    file.write(text)
            publishing.publish(parent, name, owner, facts={"checkpoint": plan.checkpoint})
        finally:
            publishing.remove_tree(staged)
        kind = f"AutoModelFor{form.kind}" if form.kind else "AutoModel"
        print(f"{self.parameters.out_dir}: {kind} of {plan.checkpoint}")

    def _form(self, predictor: Predictor) -> Form:
        """Return how transformers has the network, once it is sure that it gives the same.

        Raises:
            ConfigError: it has none, or one that gives something else.
        """
        from xdpx.inference import probes
        from xdpx.inference.transformers_folder import problem_of
        from xdpx.models.pytorch.library_form import Inexpressible, differs, form_of

        model = predictor.task.model
        try:
            form = form_of(model, problem_of(predictor.task.loss), predictor.labels)
        except Inexpressible as error:
            remedy = "x-script export_onnx and export_torchscript write any network."
            raise ConfigError(self.source, [Fault("save_dir", f"{error}.", remedy)]) from error
        if form.kind:
            network = form.build()
            network.load_state_dict(form.weights(model.state_dict()))
            batches = [probes.sample_inputs(predictor.processor, lengths) for lengths in LENGTHS]
            trouble = differs(form, network, model, batches)
            form = form if not trouble else form_of(model, None, None)
            reason = trouble or form.reason
        else:
            reason = form.reason
        if reason:
            log.warning(f"the encoder alone is written, for AutoModel: {reason}")
        return form


def main(argv: Sequence[str]) -> int:
    """Run it for every run of a config."""
    from xdpx.commands.script_arguments import run_config

    return run_config(NAME, argv)
