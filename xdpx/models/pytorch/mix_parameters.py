"""What `bert_mix` lets a user decide. No torch here, so that a config is checked before torch is imported."""

from __future__ import annotations

from typing import Literal

from xdpx.config import parameters as declare
from xdpx.models.pytorch.parameters import BertParameters, uneven_windows


class BertMixParameters(BertParameters):
    """Keys of `bert_mix`."""

    embedding_dim: int = declare.param(gt=0, doc="Length of a word vector.")
    task_type: Literal["classification", "matching"] | None = declare.param(
        None, doc="Accepted without effect, for old configs: one text, and two that are read as one, have one network."
    )
    prediction: Literal["simple", "full"] = declare.param(
        "simple", doc="simple: one linear layer gives the logits; full: two layers."
    )
    pooling: Literal["max", "attn"] = declare.param("max", doc="How one vector is made of all words.")
    dropout: float = declare.param(0.2, ge=0, lt=1, doc="Share of the features set to 0 in training, above BERT.")
    output_dropout_prob: float = declare.param(
        0.0, ge=0, lt=1, doc="Share of the features before the last layer set to 0 in training."
    )
    word_emb: bool = declare.param(True, doc="Look at words as a whole.")
    word_emb_proj: int | None = declare.param(
        None, gt=0, doc="Width that word vectors are projected to; null: none.", when=("word_emb", "is", True)
    )
    char_emb: bool = declare.param(True, doc="Look at what BERT makes of the pieces of words.")
    bert_seq_layer: int = declare.param(-1, doc="State of BERT that is looked at: 0 the embeddings, -1 the last layer.")
    char_layer_norm: bool = declare.param(True, doc="Normalise what BERT gives.", when=("char_emb", "is", True))
    char_hidden_size: int = declare.param(
        768, gt=0, doc="Width of the convolutions over pieces.", when=("char_emb", "is", True)
    )
    concat_cls: bool = declare.param(True, doc="Let the prediction see the first token of BERT too.")
    fusion: bool = declare.param(True, doc="Mix both vectors of a word by layers of their own.")
    fusion_hidden_size: int = declare.param(150, gt=0, doc="Width of these layers.", when=("fusion", "is", True))
    fusion_layers: int = declare.param(2, gt=0, doc="Number of these layers.", when=("fusion", "is", True))
    fusion_activation: bool = declare.param(False, doc="End each of them with GELU.", when=("fusion", "is", True))
    pooler: bool = declare.param(
        False, doc="Put a layer with tanh above the first token of BERT.", when=("concat_cls", "is", True)
    )
    seq_pooler: bool = declare.param(False, doc="Put a layer with tanh above the pooled words.")
    char_encoder_layers: int = declare.param(
        1, gt=0, doc="Layers of convolutions over pieces.", when=("char_emb", "is", True)
    )
    kernel_sizes: list[int] = declare.param([3], doc="Widths of the convolution windows.")
    residual: bool = declare.param(False, doc="Add the input of each layer over words but the first to its output.")
    encoder_layers: int = declare.param(3, gt=0, doc="Layers of convolutions over words.")
    encoder_hidden_size: int = declare.param(200, gt=0, doc="Width of the convolutions over words.")
    num_classes: int | None = declare.param(None, gt=0, doc="Number of classes, from meta.hjson.")
    word_vocab_size: int | None = declare.param(None, gt=0, doc="Number of words, from meta.hjson.")
    data_dir: str | None = declare.param(None, doc="The folder that x-prepro wrote; its embeddings.pt is used.")

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse to look at nothing, and windows that cannot share a width evenly."""
        found = super().conflicts()
        if not self.word_emb and not self.char_emb:
            found.append(("word_emb", "is false, and so is char_emb: nothing is left. Set one of them to true."))
        widths = {"char_hidden_size": self.char_hidden_size, "encoder_hidden_size": self.encoder_hidden_size}
        return found + uneven_windows(self.kernel_sizes, **widths)
