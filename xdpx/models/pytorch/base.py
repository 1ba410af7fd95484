"""What every network has beside its layers: parameter groups, and weights taken over from elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from xdpx.models.pytorch import google_names, weights
from xdpx.models.pytorch.parameters import ModelParameters

ReadWeights = Callable[[str], Any]
"""Reads a checkpoint file safely: the caller hands in `checkpoints.trusted.load_tensors`."""


class Model(nn.Module):
    """A network whose `forward(**net_input)` gives logits.

    A model is built from its typed parameters alone, with random weights. `load_pretrained` is called once, at the
    start of a training run; whoever has weights of the whole model already (x-eval, resume) never calls it.
    """

    Parameters = ModelParameters

    takes_noise: ClassVar[bool] = True
    """Whether noise on the word vectors of a batch's texts is noise on what the network reads: false where it reads
    texts of its own making."""

    is_of_library: ClassVar[bool] = False
    """Whether it is a network of transformers with something around it, which may be opened there (`library_form`)."""

    def __init__(self, parameters: ModelParameters) -> None:
        super().__init__()
        self.parameters_used: Any = parameters

    def load_pretrained(self, read_weights: ReadWeights) -> None:
        """Load the weights that `pretrained_model` names; log what was missing, unexpected or of another size.

        Raises:
            ConfigError: the file fits in no part, or a size differs while `strict_size` holds.
        """
        known = self.parameters_used
        if known.pretrained_model:
            table = google_names.user_table(known.tf_names)
            found = self.adapt(weights.read(known.pretrained_model, read_weights, table=table))
            weights.take_over(self, found, strict_size=known.strict_size, source=known.pretrained_model)

    def adapt(self, found: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Bring foreign names and shapes into ours. A subclass overrides it."""
        return dict(found)

    def parameter_groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """Split the trained weights into groups for an optimizer; here all decay (`utils/weight_decay.py`).

        Each group holds `params`, `lr` and `name`; `weight_decay` only where it differs from the optimizer's own.
        """
        trained = [weight for weight in self.parameters() if weight.requires_grad]
        return [{"params": trained, "lr": learning_rate, "name": "all"}]

    def layers_apart(self) -> Sequence[nn.Module]:
        """Return layers that nothing reads but by calling them.

        Processes that share the weights out gather these one at a time, and the rest of the network as a whole.
        """
        return ()

    def get_input_embeddings(self) -> nn.Embedding:
        """Return the table of token vectors: the first of a network's tables, unless a subclass says another.

        Raises:
            NotImplementedError: there is none.
        """
        for module in self.modules():
            if isinstance(module, nn.Embedding):
                return module
        raise NotImplementedError(f"{type(self).__name__} has no table of token vectors.")

    def resource_files(self) -> dict[str, str]:
        """Return the text files that must lie beside a checkpoint to rebuild the model, by name (`config.json`)."""
        return {}
