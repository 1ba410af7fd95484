"""Classification with the relatives of BERT: the same key by key, but for the architecture when there are no weights.

With `pretrained_model` or `auto_model` the architecture is what these say, whatever the name of the model.
"""

from __future__ import annotations

from typing import ClassVar

from xdpx.config import parameters as declare
from xdpx.models.pytorch.bert_classification import BertClassification
from xdpx.models.pytorch.parameters import GROUP, BertParameters

TYPE = "Architecture of random weights, by its name in transformers."
NO_EFFECT = "Accepted without effect, for old configs."


class RobertaClassification(BertClassification):
    """BERT with positions that are numbered from behind the padding, and without segments in its own weights.

    Source: Liu et al., "RoBERTa: A Robustly Optimized BERT Pretraining Approach", arXiv 1907.11692.
    """

    class Parameters(BertClassification.Parameters):
        """Keys of `roberta_classification`."""

        model_type: str = declare.param("roberta", doc=TYPE)


class AlbertParameters(BertParameters):
    """What all of ALBERT's models let a user decide beside what BERT's do."""

    more_sizes: ClassVar[tuple[str, ...]] = ("embedding_size", "num_hidden_groups", "inner_group_num")

    model_type: str = declare.param("albert", doc=TYPE)
    embedding_size: int = declare.param(128, gt=0, doc="Length of a word vector.", group=GROUP)
    num_hidden_groups: int = declare.param(
        1, gt=0, doc="Into how many groups layers fall that share weights.", group=GROUP
    )
    inner_group_num: int = declare.param(1, gt=0, doc="Layers with weights of their own in a group.", group=GROUP)
    net_structure_type: int = declare.param(0, doc=NO_EFFECT, group=GROUP)
    layers_to_keep: list[int] = declare.param([], doc=NO_EFFECT, group=GROUP)
    gap_size: int = declare.param(0, doc=NO_EFFECT, group=GROUP)
    num_memory_blocks: int = declare.param(0, doc=NO_EFFECT, group=GROUP)
    down_scale_factor: int = declare.param(1, doc=NO_EFFECT, group=GROUP)


class AlbertClassification(BertClassification):
    """BERT whose layers share their weights, with word vectors narrower than the layers.

    Source: Lan et al., "ALBERT: A Lite BERT", ICLR 2020, section 3.1.
    """

    class Parameters(AlbertParameters, BertClassification.Parameters):
        """Keys of `albert_classification`."""


class ElectraClassification(BertClassification):
    """BERT pretrained to tell replaced tokens from others; it has no pooler of its own, so that layer is new.

    Source: Clark et al., "ELECTRA", ICLR 2020, section 2.
    """

    class Parameters(BertClassification.Parameters):
        """Keys of `electra_classification`."""

        more_sizes: ClassVar[tuple[str, ...]] = ("embedding_size",)

        model_type: str = declare.param("electra", doc=TYPE)
        embedding_size: int = declare.param(128, gt=0, doc="Length of a word vector.", group=GROUP)


class DebertaClassification(BertClassification):
    """Attention that looks at what a token is and where it stands apart from one another.

    Source: He et al., "DeBERTa: Decoding-enhanced BERT with Disentangled Attention", ICLR 2021, section 3.
    """

    class Parameters(BertClassification.Parameters):
        """Keys of `deberta_classification`."""

        model_type: str = declare.param("deberta-v2", doc=TYPE)


class ModernBertClassification(BertClassification):
    """Rotary positions, gated layers, norms in front, and layers that look through windows between those that do not.

    Source: Warner et al., "Smarter, Better, Faster, Longer", arXiv 2412.13663, section 2.
    """

    class Parameters(BertClassification.Parameters):
        """Keys of `modernbert_classification`."""

        model_type: str = declare.param("modernbert", doc=TYPE)
