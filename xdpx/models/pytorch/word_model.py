"""What the networks over word vectors share: their keys, their embedding table, and where its vectors come from."""

from __future__ import annotations

from torch import Tensor

from xdpx.config import parameters as declare
from xdpx.config.faults import THIS_RUN, ConfigError, Fault
from xdpx.logger import log
from xdpx.models.pytorch.base import Model, ReadWeights
from xdpx.models.pytorch.light_parameters import PoolingParameters
from xdpx.models.pytorch.modules.convolution import Encoder
from xdpx.models.pytorch.modules.embedding import Embedding
from xdpx.models.pytorch.modules.pooling import AttentionPooling, MaxPooling
from xdpx.models.pytorch.parameters import TableParameters, WordParameters
from xdpx.utils import io


class WordModel(Model):
    """A model that begins with a table of word vectors."""

    Parameters = TableParameters

    embedding: Embedding

    def build_embedding(self, parameters: TableParameters, *, fixed: bool) -> Embedding:
        """Give a table of random vectors."""
        return Embedding(
            given(parameters.vocab_size, "vocab_size"),
            parameters.embedding_dim,
            pad_index=parameters.pad_index or 0,
            fixed=fixed,
            dropout=parameters.dropout,
        )

    def load_pretrained(self, read_weights: ReadWeights) -> None:
        """Take over the vectors in data_dir/embeddings.pt, if any, then what `pretrained_model` names."""
        known = self.parameters_used
        filled = fill_from_data(self.embedding, known.data_dir, read_weights)
        if not filled and not self.embedding.table.weight.requires_grad and not known.pretrained_model:
            log.warning(
                "fix_embeddings is true but there are no pretrained word vectors: random ones stay as they are. "
                "Set fix_embeddings: false to train them."
            )
        super().load_pretrained(read_weights)


class PooledParameters(PoolingParameters, WordParameters):
    """Keys of the convolutional networks that end in one pooled vector per text."""

    encoder_layers: int | None = declare.param(None, gt=0, doc="Layers of convolutions; null: 1.")


class PooledModel(WordModel):
    """Word vectors, convolutions, and pooling: one vector per text.

    Attributes:
        pooled_size: width of that vector.
    """

    class Parameters(PooledParameters):
        """Keys of every such network."""

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
        """Give one vector (B, pooled_size) for each text (B, T); mask (B, T) is true at real tokens."""
        mask = mask.bool()
        pooled: Tensor = self.pooling(self.encoder(self.embedding(tokens), mask), mask)
        return pooled


def build_pooling(known: PoolingParameters) -> tuple[MaxPooling | AttentionPooling, int]:
    """Give the pooling layer and the width of what it gives."""
    if known.pooling == "max":
        return MaxPooling(), known.hidden_size
    output_size = known.pool_output_size or known.hidden_size
    hidden_size = known.pool_hidden_size or known.hidden_size
    return AttentionPooling(known.hidden_size, hidden_size=hidden_size, output_size=output_size), output_size


def given(value: int | None, key: str) -> int:
    """Give a number that the data must have decided. Raises ConfigError when it did not."""
    if value is None:
        problem = "is not known: the preprocessed data does not say it."
        raise ConfigError(THIS_RUN, [Fault(key, problem, "Inherit the data's meta: __parent__: ${data_dir}/meta.")])
    return value


def fill_from_data(embedding: Embedding, data_dir: str | None, read_weights: ReadWeights) -> bool:
    """Put the vectors in data_dir/embeddings.pt into a table; tell whether there are any."""
    path = io.join(data_dir, "embeddings.pt") if data_dir else ""
    if not path or not io.exists(path):
        return False
    embedding.fill(_vectors(read_weights(path), path), path)
    log.info(f"{path}: word vectors taken over")
    return True


def _vectors(content: object, path: str) -> Tensor:
    if not isinstance(content, Tensor):
        problem = f"finds {path}, which holds no single tensor of word vectors."
        raise ConfigError(THIS_RUN, [Fault("data_dir", problem, "Run x-prepro again with `embeddings`.")])
    return content
