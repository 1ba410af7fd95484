"""Classification with relatives of BERT: the same keys, and another architecture for random weights.

With `pretrained_model` or `auto_model` these determine the architecture, whatever the name of the model.
"""

from __future__ import annotations

from typing import ClassVar

from xdpx.config import parameters as declare
from xdpx.models.pytorch.bert_classification import BertClassification
from xdpx.models.pytorch.parameters import GROUP, BertParameters

TYPE = "Architecture of random weights, by its name in transformers."
NO_EFFECT = "Accepted without effect, for old configs."


class RobertaClassification(BertClassification):
    """BERT with positions numbered from the padding index, and without segments.

    Source: Liu et al., "RoBERTa: A Robustly Optimized BERT Pretraining Approach", arXiv 1907.11692.
    """

    class Parameters(BertClassification.Parameters):
        """Keys of `roberta_classification`."""

        model_type: str = declare.param("roberta", doc=TYPE)


class AlbertParameters(BertParameters):
    """Keys of all ALBERT models, in addition to those of BERT."""

    more_sizes: ClassVar[tuple[str, ...]] = ("embedding_size", "num_hidden_groups", "inner_group_num")

    model_type: str = declare.param("albert", doc=TYPE)
    embedding_size: int = declare.param(128, gt=0, doc="Width of the word embeddings.", group=GROUP)
    num_hidden_groups: int = declare.param(1, gt=0, doc="Number of groups of layers that share weights.", group=GROUP)
    inner_group_num: int = declare.param(1, gt=0, doc="Layers with separate weights in a group.", group=GROUP)
    net_structure_type: int = declare.param(0, doc=NO_EFFECT, group=GROUP)
    layers_to_keep: list[int] = declare.param([], doc=NO_EFFECT, group=GROUP)
    gap_size: int = declare.param(0, doc=NO_EFFECT, group=GROUP)
    num_memory_blocks: int = declare.param(0, doc=NO_EFFECT, group=GROUP)
    down_scale_factor: int = declare.param(1, doc=NO_EFFECT, group=GROUP)


class AlbertClassification(BertClassification):
    """BERT whose layers share weights, with word embeddings narrower than the layers.

    Source: Lan et al., "ALBERT: A Lite BERT", ICLR 2020, section 3.1.
    """

    class Parameters(AlbertParameters, BertClassification.Parameters):
        """Keys of `albert_classification`."""


class ElectraClassification(BertClassification):
    """BERT pretrained by replaced-token detection; it has no pooler, so that layer is new.

    Source: Clark et al., "ELECTRA", ICLR 2020, section 2.
    """

    class Parameters(BertClassification.Parameters):
        """Keys of `electra_classification`."""

        more_sizes: ClassVar[tuple[str, ...]] = ("embedding_size",)

        model_type: str = declare.param("electra", doc=TYPE)
        embedding_size: int = declare.param(128, gt=0, doc="Width of the word embeddings.", group=GROUP)


class DebertaClassification(BertClassification):
    """BERT with disentangled attention to content and relative position.

    Source: He et al., "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", ICLR 2021, section 3.
    """

    class Parameters(BertClassification.Parameters):
        """Keys of `deberta_classification`."""

        model_type: str = declare.param("deberta-v2", doc=TYPE)


class ModernBertClassification(BertClassification):
    """Rotary positions, gated layers, pre-norm, and local attention in most layers, global attention in some.

    Source: Warner et al., "Smarter, Better, Faster, Longer", arXiv 2412.13663, section 2.
    """

    class Parameters(BertClassification.Parameters):
        """Keys of `modernbert_classification`."""

        model_type: str = declare.param("modernbert", doc=TYPE)
