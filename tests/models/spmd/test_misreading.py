from typing import Any

import numpy as np
import pytest

from xdpx.models.spmd.bert_model import BertModel
from xdpx.models.spmd.classification_model import BertClassificationModel
from xdpx.models.spmd.language_model import LanguageModel, TransformerLm
from xdpx.models.spmd.layers.bert import BertEncoder
from xdpx.models.spmd.layers.encoder_decoder import TransformerEncoderDecoder
from xdpx.models.spmd.layers.positions import TrainablePositionalEmbedding
from xdpx.models.spmd.sequence_model import SequenceModel

IDS = np.array([[5, 6, 7, 8], [5, 6, 7, 8]])
RIGHT, LEFT = [[0, 0, 0, 0], [0, 0, 1, 1]], [[0, 0, 0, 0], [1, 0, 0, 0]]
ONE, TWO = [[1, 1, 1, 1], [7, 7, 0, 0]], [[1, 1, 1, 1], [1, 1, 2, 0]]


def told(batch: dict[str, Any], *, decoding: bool = False, **fields: Any) -> str:
    model = LanguageModel(lm_tpl=TransformerLm.HParams(**fields))
    return " ".join(f"{name} {problem}" for name, problem, _ in model.misread({"ids": IDS, **batch}, decoding=decoding))


def test_several_texts_in_a_row_need_a_network_that_tells_them_apart() -> None:
    assert "segment_ids has several texts in a row, which would attend to each other" in told({"segment_ids": TWO})
    assert told({"segment_ids": ONE}) == told({"segment_ids": TWO}, packed_input=True) == ""
    assert "decoding continues one text per row" in told({"segment_ids": TWO}, packed_input=True, decoding=True)
    assert told({"segment_ids": ONE}, packed_input=True, decoding=True) == ""


def test_padding_before_tokens_is_refused_unless_the_network_masks_it() -> None:
    assert "paddings has padding before a token (row 1)" in told({"paddings": LEFT})
    assert "paddings" in told({"paddings": LEFT, "segment_ids": [[1, 1, 1, 1], [0, 1, 1, 1]]})
    assert told({"paddings": LEFT, "segment_ids": [[1, 1, 1, 1], [0, 1, 1, 1]]}, packed_input=True) == ""
    assert told({"paddings": [[0, 1, 0, 1], [0, 0, 0, 1]], "segment_ids": [[1, 1, 2, 2]] * 2}, packed_input=True) == ""
    assert told({"paddings": RIGHT}) == told({"paddings": LEFT}, model_type="bidirectional") == ""
    assert told({"paddings": LEFT}, decoding=True) == ""  # its padding is put behind


def test_tokens_beyond_the_trained_positions_are_refused() -> None:
    table = TrainablePositionalEmbedding.HParams(max_seq_length=3)
    assert "ids has a token at position 3, but the model has trained positions 0 to 2" in told(
        {}, position_emb_tpl=table
    )
    assert "segment_pos" in told({"segment_pos": [[0, 1, 2, 3]] * 2}, position_emb_tpl=table)
    assert told({"segment_pos": [[0, 1, 0, 1]] * 2}, position_emb_tpl=table) == ""
    assert told({"paddings": [[0, 0, 0, 1]] * 2}, position_emb_tpl=table) == told({}) == ""


@pytest.mark.parametrize("decoding", [False, True])
def test_source_and_target_are_both_looked_at(decoding: bool) -> None:
    model = SequenceModel(model_tpl=TransformerEncoderDecoder.HParams(vocab_size=9))
    parts = {"src": {"segment_ids": TWO}, "tgt": {"segment_ids": TWO, "paddings": LEFT}}
    found = [name for name, _, _ in model.misread(parts, decoding=decoding)]
    assert found == ["src.segment_ids", "tgt.segment_ids", "tgt.paddings"]
    assert model.num_ids() == {"src.ids": 9, "tgt.ids": 9, "tgt.labels": 9}


def test_positions_of_every_text_are_looked_at() -> None:
    table = TrainablePositionalEmbedding.HParams(max_seq_length=3)
    parts = {"src": {"ids": IDS}, "tgt": {"ids": IDS}}
    model = SequenceModel(model_tpl=TransformerEncoderDecoder.HParams(vocab_size=9, position_emb_tpl=table))
    assert [name for name, _, _ in model.misread(parts, decoding=False)] == ["src.ids", "tgt.ids"]
    assert [name for name, _, _ in model.misread(parts, decoding=True)] == ["src.ids"]
    far = {"ids": IDS, "segment_pos": IDS}
    encoder = BertEncoder.HParams(vocab_size=9, model_dims=4, max_positions=8)
    for bert in (BertModel(encoder_tpl=encoder), BertClassificationModel(network_tpl=encoder)):
        assert [name for name, _, _ in bert.misread(far, decoding=False)] == ["segment_pos"]
        assert not list(bert.misread({"ids": IDS}, decoding=False))
        assert bert.num_ids()["token_types"] == 2
