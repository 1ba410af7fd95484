"""Write weights of BERT and ALBERT as a TensorFlow checkpoint, under the names that Google's scripts read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from xdpx.checkpoints import tf_files
from xdpx.config import extras
from xdpx.config.faults import refusal
from xdpx.models.pytorch import google_names

if TYPE_CHECKING:
    from torch import Tensor, nn

KINDS = frozenset({"bert", "albert"})
"""Encoder types for which Google has weight names."""
CONFIG = "bert_config.json"


def named(model: nn.Module) -> tuple[dict[str, Tensor], list[str]]:
    """Return the weights of a network under Google's names, and the names of those without one; tied ones count once.

    Raises:
        ConfigError: the encoder is neither BERT nor ALBERT.
    """
    config: Any = getattr(model, "config", None)
    kind = getattr(config, "model_type", None)
    if kind not in KINDS:
        problem = f"{type(model).__name__} is built on {kind or 'no encoder of transformers'}, not on BERT or ALBERT."
        raise refusal("export_format", problem, "Use savedmodel, which takes any network.")
    seen: dict[int, str] = {}
    for name, value in model.state_dict(keep_vars=True).items():
        seen.setdefault(id(value), name)
    state = model.state_dict()
    found, unknown = google_names.theirs({name: state[name] for name in seen.values()}, albert=kind == "albert")
    return found, unknown


def write(weights: Mapping[str, Tensor], prefix: str) -> None:
    """Write the files of a checkpoint (`.index`, `.data-00000-of-00001`, `.meta`) as a Saver of TensorFlow 1 does.

    Args:
        weights: by their names in the checkpoint.
        prefix: local path prefix of the files.

    Raises:
        ConfigError: TensorFlow is not installed, or the files do not read back as written.
    """
    import torch

    tf = extras.tensorflow("export_format", "is 'checkpoint'")
    old = tf.compat.v1
    with tf.Graph().as_default(), tf.device("CPU"), old.Session() as session:
        for name, value in weights.items():
            array = value.detach().cpu().numpy()
            variable = old.get_variable(name, array.shape, dtype=array.dtype, initializer=old.zeros_initializer())
            given = old.placeholder(array.dtype, array.shape)
            session.run(old.assign(variable, given), {given: array})
        old.train.Saver().save(session, prefix, write_state=False)
    again = tf_files.read(prefix + tf_files.INDEX)
    if again.keys() != weights.keys() or not all(torch.equal(again[name], weights[name].cpu()) for name in weights):
        problem = f"'{prefix}' does not contain what was written."
        raise refusal("out_dir", problem, "The disk may be failing: write it elsewhere.")
