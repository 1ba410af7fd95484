"""Convert TensorFlow weights to a PyTorch model: a .pt file and config.json, to be used as pretrained_model.

Usage: x-script export_pt CONFIG [key=value ...] [--dry]

tf_ckpt_path is the prefix of a checkpoint, or the folder of a SavedModel, of BERT or ALBERT with Google's names; for
your own model give a table of names, tf_names. tf_config is its bert_config.json. out_dir gets the weights, config.json
and vocab.txt, if there is one beside the weights. Missing weights are printed. It needs `pip install 'xdpx[tf]'`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from pydantic import ValidationError

from xdpx.checkpoints import tf_files
from xdpx.commands.script_arguments import run_config, unfit_name
from xdpx.config import extras, parameters
from xdpx.config.faults import ConfigError, Fault, unknown_name
from xdpx.config.loading import Run
from xdpx.config.parameters import param
from xdpx.utils import io

NAME = "export_pt"
VOCABULARY = "vocab.txt"
FOREIGN = (".safetensors", tf_files.INDEX, ".json", ".txt")
"""Endings that are not read as torch files, or would clash with the files written beside the weights."""


class ExportPT:
    """Convert TensorFlow weights to a PyTorch model."""

    class Parameters(parameters.Parameters):
        """The keys of `x-script export_pt`."""

        tf_ckpt_path: str | None = param(None, doc="Prefix of a checkpoint, or folder of a SavedModel.")
        tf_path: str | None = param(None, doc="The same as tf_ckpt_path, for old configs.")
        tf_config: str | None = param(None, doc="The bert_config.json of the model; null: the one beside the weights.")
        bert_config: str | None = param(None, doc="The same as tf_config, for old configs.")
        out_dir: str = param(
            doc="Folder for the weights, config.json and vocab.txt; existing ones are replaced.",
            path="new_directory",
            unique=True,
        )
        out_name: str = param("bert_model.pt", doc="Name of the file with the weights.")
        model_class: str = param("bert_pretrain", doc="Name of the XDPX model that gets the weights.")
        extra_configs: dict[str, Any] = param({}, doc="Further keys of that model.")
        num_classes: int | None = param(None, gt=0, doc="Classes of its classifier; 3 of StructBERT; null: 2.")
        strict_size: bool = param(True, doc="Fail if a weight has a different size in the file.")
        from_tf: bool = param(True, doc="The weights are from TensorFlow; false: from another PyTorch program.")
        tf_format: str | None = param(None, doc="Accepted without effect, for old configs: it follows from the path.")
        signature_def_key: str | None = param(None, doc="Accepted without effect: all signatures share the variables.")
        tf_names: list[list[Any]] = param(
            [], doc="Names for a model of your own: [[in the file, in XDPX, true to transpose a matrix], ...]."
        )

        def conflicts(self) -> list[tuple[str, str]]:
            """Refuse a path given twice or not at all, and a file name with the ending of another format."""
            found = unfit_name("out_name", self.out_name)
            if self.out_name.endswith(FOREIGN):
                found.append(
                    ("out_name", f"is '{self.out_name}', but the file is in PyTorch's format. Let it end with .pt.")
                )
            if (self.tf_ckpt_path is None) == (self.tf_path is None):
                both = "are both missing" if self.tf_path is None else "are both given"
                found.append(("tf_ckpt_path", f"and tf_path {both}. Give tf_ckpt_path."))
            if self.tf_config is not None and self.bert_config is not None:
                found.append(("tf_config", "and bert_config are both given. Give tf_config."))
            return found

    def __init__(self, run: Run) -> None:
        self.source = run.source
        self.parameters: ExportPT.Parameters = run.parameters("command")

    @property
    def _path(self) -> str:
        return str(self.parameters.tf_ckpt_path or self.parameters.tf_path)

    def check(self) -> list[Fault]:
        """Return the faults that can be found before the model is built."""
        from xdpx.models import models

        known = self.parameters
        found = []
        if known.from_tf and find_spec("tensorflow") is None:
            found.append(Fault("from_tf", "is true, which needs TensorFlow.", extras.TF))
        try:
            self._weights()
        except FileNotFoundError as error:
            problem = f"cannot be used: {str(error).rstrip('.')}."
            found.append(Fault("tf_ckpt_path", problem, "Check the path.", code="missing_path"))
        config = known.tf_config or known.bert_config
        if config is not None and not io.isfile(config):
            found.append(Fault("tf_config", f"'{config}' does not exist.", "Check the path.", code="missing_path"))
        if known.model_class not in models:
            found.append(unknown_name("model_class", known.model_class, [*models]))
        return found

    def run(self) -> None:
        """Read the weights, rename them, and write those that fit."""
        from xdpx.checkpoints.trusted import load_weights, save_tensors
        from xdpx.models.pytorch import google_names, weights
        from xdpx.utils.commit import replacing, write_text

        known, source = self.parameters, self._weights()
        model = self._model(source)
        found = model.adapt(weights.read(source, load_weights, table=google_names.user_table(known.tf_names)))
        weights.take_over(model, found, strict_size=known.strict_size, source=self._path)
        own = model.state_dict(keep_vars=True)
        loaded = {id(own[name]) for name in found if name in own and own[name].shape == found[name].shape}
        kept = {name: value.detach() for name, value in own.items() if id(value) in loaded}
        io.makedirs(known.out_dir)
        for name, text in model.resource_files().items():
            write_text(io.join(known.out_dir, name), text)
        words = io.join(io.parent(source), VOCABULARY)
        if io.isfile(words):
            io.copy(words, io.join(known.out_dir, VOCABULARY))
        target = io.join(known.out_dir, known.out_name)
        with replacing(target, "wb") as file:
            save_tensors(kept, file)
        print(f"{target}: {len(kept)} of {len(own)} weights of {known.model_class}, from {self._path}")

    def _weights(self) -> str:
        if self.parameters.from_tf:
            return tf_files.index_of(self._path)
        if not io.exists(self._path):
            raise FileNotFoundError(f"'{self._path}' does not exist.")
        return self._path

    def _model(self, source: str) -> Any:
        """Return the network with random weights.

        Raises:
            ConfigError: the sizes are unknown, or a key of the model is missing or unknown.
        """
        from xdpx.models import models
        from xdpx.models.pytorch import weights

        known = self.parameters
        kind, config = models[known.model_class], known.tf_config or known.bert_config or weights.config_file(source)
        taken = kind.Parameters.model_fields
        if config is None and "extra_config" in taken:
            problem = f"is missing, and there is no bert_config.json beside '{self._path}'."
            raise ConfigError(self.source, [Fault("tf_config", problem, "Name the file with the model's sizes.")])
        unknown = [unknown_name("extra_configs", key, [*taken]) for key in known.extra_configs if key not in taken]
        if known.num_classes is not None and "num_classes" not in taken:
            problem = f"is {known.num_classes}, but {known.model_class} has no classes."
            unknown.append(Fault("num_classes", problem, "Leave it out, or name another model_class."))
        if unknown:
            raise ConfigError(self.source, unknown)
        sizes = weights.read_table(config) if config is not None else {}
        keys: dict[str, Any] = {"pretrained_model": None, "extra_config": sizes, "num_classes": known.num_classes or 2}
        keys |= {"model_type": sizes.pop("model_type")} if "model_type" in sizes else {}
        keys |= {"load_cls_weights": True}
        return kind(self._typed(kind, {key: keys[key] for key in keys if key in taken} | known.extra_configs))

    def _typed(self, kind: Any, keys: dict[str, Any]) -> Any:
        """Return the parameters of a model. Raises ConfigError if one is missing or invalid."""
        try:
            found = kind.Parameters(**keys)
        except ValidationError as error:
            named = [(str((each["loc"] or ("",))[0]), f"{each['msg']}.") for each in error.errors()]
        else:
            named = found.conflicts()
        if named:
            remedy = f"{self.parameters.model_class} requires this: set it in extra_configs."
            raise ConfigError(self.source, [Fault(f"extra_configs.{key}", text, remedy) for key, text in named])
        return found


def main(argv: Sequence[str]) -> int:
    """Run the script for every run of a config."""
    return run_config(NAME, argv)
