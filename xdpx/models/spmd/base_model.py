"""Base class of models: layers that predict, compute a loss and, optionally, decode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from xdpx.config.faults import ConfigError, refusal
from xdpx.config.hparams import BaseHParams
from xdpx.models.spmd.base_layer import BaseLayer
from xdpx.models.spmd.misreading import Problem
from xdpx.models.spmd.scoring import Metrics
from xdpx.utils.nested_map import NestedMap


class BaseModel(BaseLayer):
    """A model: a subclass defines `compute_predictions` and `compute_loss`, and two more methods if it decodes."""

    def compute_predictions(self, batch: NestedMap) -> NestedMap:
        """Return the network's outputs for a batch, such as logits."""
        raise self._undefined("compute_predictions")

    def compute_loss(self, predictions: NestedMap, batch: NestedMap) -> tuple[Metrics, NestedMap]:
        """Return (metrics as (mean, weight), including the loss; values per example)."""
        raise self._undefined("compute_loss")

    def __call__(self, batch: NestedMap) -> tuple[Metrics, NestedMap]:
        """Return the loss of the predictions, as `compute_loss`."""
        return self.compute_loss(self.compute_predictions(batch), batch)

    def decode(self, batch: NestedMap) -> tuple[Any, Any, Any]:
        """Return metrics as (mean, weight), values per example, and the decoded output."""
        raise self._undefined("decode")

    def process_decode_out(
        self, model_input: Any, out: NestedMap
    ) -> tuple[dict[str, tuple[float, float]], Sequence[tuple[str, Any]]]:
        """Return metrics as (mean, weight), and (key, row) of each decoded example. On the host.

        An example may have several rows; rows of padding may be left out. `row_in_batch` in a row says which row of the
        batch it belongs to. Without it, the rows of an example follow one another with the same key, as many for each.
        """
        raise self._undefined("process_decode_out")

    def decoder_template(self) -> BaseHParams | None:
        """Return the template of the decoder that `decode` builds, so that its fields are checked before training."""
        return None

    def num_ids(self) -> dict[str, int]:
        """Return how many ids each integer array of a batch may hold: {"ids": 32000} for 0 to 31999.

        Arrays in maps inside a batch have names like `src.ids`. Batches are compared with it on the host:
        on a device, an id beyond a table silently reads another row or none.
        """
        return {}

    def misread(self, batch: Mapping[str, Any], *, decoding: bool) -> Iterator[Problem]:
        """Yield (array, problem, remedy) for whatever in a batch of the host the model would silently misread.

        Args:
            batch: of NumPy arrays.
            decoding: whether it is to be decoded, rather than trained on or scored.
        """
        return iter(())

    def _undefined(self, method: str) -> ConfigError:
        problem = f"'{type(self).__name__}' does not define {method}()."
        return refusal("model", problem, "Define it as described in xdpx.models.spmd.base_model.")
