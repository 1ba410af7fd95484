"""Base class of networks: loading of pretrained weights, and parameter groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from xdpx.models.pytorch import google_names, weights
from xdpx.models.pytorch.parameters import ModelParameters

ReadWeights = Callable[[str], Any]
"""Reads a checkpoint file without unpickling: the caller passes `checkpoints.trusted.load_tensors`."""


class Model(nn.Module):
    """A network whose `forward(**net_input)` returns logits.

    A model is constructed from its typed parameters alone, with random weights. `load_pretrained` is called once, at
    the start of a training; it is not called if all weights are loaded from a checkpoint (x-eval, resume).
    """

    Parameters = ModelParameters

    takes_noise: ClassVar[bool] = True
    """Whether noise on the token embeddings of a batch reaches the network: false if it reads other tokens than those
    of the batch."""

    not_in_file: Sequence[str] = ()
    """Names of the weights that `pretrained_model` lacked, or had in another size, which are random at first."""

    is_of_library: ClassVar[bool] = False
    """Whether it wraps a network of transformers, so that its weights can be opened there (`library_form`)."""

    def __init__(self, parameters: ModelParameters) -> None:
        super().__init__()
        self.parameters_used: Any = parameters

    def load_pretrained(self, read_weights: ReadWeights) -> None:
        """Load the weights named by `pretrained_model`; log those that are missing, unexpected or of another size.

        Raises:
            ConfigError: no weight of the file fits; or `strict_size` is true, and a size differs or most of the encoder
                is missing, without `tf_names`.
        """
        known = self.parameters_used
        if known.pretrained_model:
            table = google_names.user_table(known.tf_names)
            found = self.adapt(weights.read(known.pretrained_model, read_weights, table=table))
            self.not_in_file = weights.take_over(
                self, found, strict_size=known.strict_size, source=known.pretrained_model,
                in_part=bool(known.tf_names),  # a table of the user may name a part
            )  # fmt: skip

    def adapt(self, found: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Convert foreign names and shapes to ours. Subclasses override it."""
        return dict(found)

    def parameter_groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """Return the trained weights in groups for an optimizer; here one group with decay (`utils/weight_decay.py`).

        Each group holds `params`, `lr` and `name`; `weight_decay` only if it differs from the optimizer's.
        """
        trained = [weight for weight in self.parameters() if weight.requires_grad]
        return [{"params": trained, "lr": learning_rate, "name": "all"}]

    def idle_keys(self) -> dict[str, str]:
        """Return the keys that change nothing in this network as it is, and why; see `engines.base.Task.idle_keys`."""
        return {}

    def layers_apart(self) -> Sequence[nn.Module]:
        """Return layers that are used only by calling them.

        With sharded weights these are gathered one at a time, and the rest of the network as a whole.
        """
        return ()

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the table of token embeddings: the first `nn.Embedding` of the network; subclasses may override it.

        Raises:
            NotImplementedError: there is none.
        """
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                return module
        raise NotImplementedError(f"{type(self).__name__} has no embedding table of tokens.")

    def resource_files(self) -> dict[str, str]:
        """Return the text files needed beside a checkpoint to rebuild the model, by name (`config.json`)."""
        return {}
