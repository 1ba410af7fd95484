"""Common base of networks over word vectors: keys, embedding table and its initial vectors, and classifiers.

A classifier is a mixin before the model class; the model has `pool`, which returns a vector per text.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from xdpx.config import parameters as declare
from xdpx.config.faults import refusal
from xdpx.logger import log
from xdpx.models.pytorch.base import Model, ReadWeights
from xdpx.models.pytorch.modules.convolution import Encoder
from xdpx.models.pytorch.modules.embedding import Embedding
from xdpx.models.pytorch.modules.heads import AttentionPooling, Matching, MatchingPrediction, MaxPooling, prediction
from xdpx.models.pytorch.parameters import PoolingParameters, TableParameters, WordParameters
from xdpx.utils import io


class WordModel(Model):
    """A model with a table of word vectors."""

    Parameters = TableParameters

    embedding: Embedding

    def build_embedding(self, parameters: TableParameters, *, fixed: bool) -> Embedding:
        """Return a table of random vectors."""
        return Embedding(
            given(parameters.vocab_size, "vocab_size"),
            parameters.embedding_dim,
            pad_index=parameters.pad_index or 0,
            fixed=fixed,
            dropout=parameters.dropout,
        )

    def load_pretrained(self, read_weights: ReadWeights) -> None:
        """Load the vectors in data_dir/embeddings.pt, if any, then the weights of `pretrained_model`."""
        known = self.parameters_used
        filled = fill_from_data(self.embedding, known.data_dir, read_weights)
        if not filled and not self.embedding.table.weight.requires_grad and not known.pretrained_model:
            log.warning(
                "fix_embeddings is true but there are no pretrained word vectors: random ones are never trained. "
                "Set fix_embeddings: false to train them."
            )
        super().load_pretrained(read_weights)


class PooledParameters(PoolingParameters, WordParameters):
    """Keys of convolutional networks with one pooled vector per text."""

    encoder_layers: int | None = declare.param(None, gt=0, doc="Layers of convolutions; null: 1.")


class PooledModel(WordModel):
    """Word vectors, convolutions, and pooling to one vector per text.

    Attributes:
        pooled_size: width of that vector.
    """

    class Parameters(PooledParameters):
        """Keys of all such networks."""

    def __init__(self, parameters: PooledParameters, *, residual: bool = False) -> None:
        super().__init__(parameters)
        self.embedding = self.build_embedding(parameters, fixed=parameters.fix_embeddings)
        self.encoder = Encoder(
            size_in=parameters.embedding_dim,
            size_out=parameters.hidden_size,
            layers=parameters.encoder_layers or 1,
            kernel_sizes=parameters.kernel_sizes,
            dropout=parameters.dropout,
            residual=residual,
        )
        self.pooling, self.pooled_size = build_pooling(parameters)

    def pool(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return one vector (B, pooled_size) for each text (B, T); mask (B, T) is true at real tokens."""
        mask = mask.bool()
        pooled: Tensor = self.pooling(self.encoder(self.embedding(tokens), mask), mask)
        return pooled


def build_pooling(known: PoolingParameters) -> tuple[MaxPooling | AttentionPooling, int]:
    """Return the pooling layer and the width of its output."""
    if known.pooling == "max":
        return MaxPooling(), known.hidden_size
    output_size = known.pool_output_size or known.hidden_size
    hidden_size = known.pool_hidden_size or known.hidden_size
    return AttentionPooling(known.hidden_size, hidden_size=hidden_size, output_size=output_size), output_size


def given(value: int | None, key: str) -> int:
    """Return a value that comes from the data's meta. Raises ConfigError if it is missing."""
    if value is None:
        problem = "is unknown: the preprocessed data does not specify it."
        raise refusal(key, problem, "Inherit the data's meta: __parent__: ${data_dir}/meta.")
    return value


def fill_from_data(embedding: Embedding, data_dir: str | None, read_weights: ReadWeights) -> bool:
    """Load the vectors in data_dir/embeddings.pt into a table; return whether there are any."""
    path = io.join(data_dir, "embeddings.pt") if data_dir else ""
    if not path or not io.exists(path):
        return False
    embedding.fill(_vectors(read_weights(path), path), path)
    log.info(f"{path}: word vectors loaded")
    return True


def _vectors(content: object, path: str) -> Tensor:
    if not isinstance(content, Tensor):
        problem = f"finds {path}, which contains no single tensor of word vectors."
        raise refusal("data_dir", problem, "Run x-prepro again with `embeddings`.")
    return content


class MatchingKeys(declare.Parameters):
    """Keys of the comparison of two vectors."""

    prediction: Matching = declare.param("full", doc="Features of the two vectors for the classifier.")


class OfOneText:
    """Two layers on the vector of a text."""

    pool: Callable[[Tensor, Tensor], Tensor]
    pooled_size: int

    def __init__(self, parameters: Any, **more: Any) -> None:
        super().__init__(parameters, **more)  # type: ignore[call-arg]
        num_classes = given(parameters.num_classes, "num_classes")
        self.prediction = prediction(self.pooled_size, parameters.hidden_size, num_classes, parameters.dropout)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        """Return logits (B, num_classes) of tokens (B, T); mask (B, T) is true at real tokens."""
        logits: Tensor = self.prediction(self.pool(tokens, mask))
        return logits


class OfTwoTexts:
    """A comparison of the vectors of two texts, encoded by the same layers."""

    pool: Callable[[Tensor, Tensor], Tensor]
    pooled_size: int

    def __init__(self, parameters: Any, **more: Any) -> None:
        super().__init__(parameters, **more)  # type: ignore[call-arg]
        num_classes = given(parameters.num_classes, "num_classes")
        self.prediction = MatchingPrediction(
            parameters.prediction, self.pooled_size, parameters.hidden_size, num_classes, dropout=parameters.dropout
        )

    def forward(self, tokens1: Tensor, mask1: Tensor, tokens2: Tensor, mask2: Tensor) -> Tensor:
        """Return logits (B, num_classes) of tokens1 (B, T) and tokens2 (B, S); masks are true at real tokens."""
        logits: Tensor = self.prediction(self.pool(tokens1, mask1), self.pool(tokens2, mask2))
        return logits
