"""The short last layer gives the pooled vector of the whole network, and the same gradients."""

import pytest
import torch
from transformers import BertConfig, BertModel, ElectraConfig, ElectraModel, RobertaConfig, RobertaModel

from tests.models.test_bert import TINY, build, texts
from xdpx.models.pytorch.modules import first_token
from xdpx.models.pytorch.modules.attention import register

ROWS = ([2, 5, 6, 9, 3], [2, 8, 3], [2, 3])


def encoder(kind, config, **changes):
    torch.manual_seed(0)
    known = config(**{**TINY, **changes})
    known._attn_implementation = register()
    network = kind(known).eval()
    # As initialised, the first token hardly depends on the others, and an error would not show.
    for weight in network.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    return network


def both(network, mask):
    ids = texts(*ROWS)["input_ids"]
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
    return network(**inputs).pooler_output, first_token.pooled(network, **inputs)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(
    ("kind", "config", "changes"),
    [
        (BertModel, BertConfig, {}),
        (BertModel, BertConfig, {"num_hidden_layers": 1}),
        (BertModel, BertConfig, {"chunk_size_feed_forward": 1}),
        (RobertaModel, RobertaConfig, {"pad_token_id": 0, "max_position_embeddings": 14}),
    ],
)
def test_it_is_the_pooled_vector_of_the_whole_network(kind, config, changes, padded):
    network = encoder(kind, config, **changes)
    mask = texts(*ROWS)["attention_mask"][:, None, None, :] if padded else None
    assert first_token.fits(network)
    whole, short = both(network, mask)
    assert torch.allclose(whole, short, atol=1e-5)


def test_every_gradient_is_that_of_the_whole_network():
    network = encoder(BertModel, BertConfig)
    gradients = []
    for pooled in both(network, texts(*ROWS)["attention_mask"][:, None, None, :]):
        network.zero_grad()
        pooled.square().sum().backward()
        gradients.append({name: weight.grad for name, weight in network.named_parameters()})
    whole, short = gradients
    assert all(torch.allclose(whole[name], short[name], atol=1e-4) for name in whole)


@pytest.mark.parametrize("keys", [{"pruned_heads": {"0": [1], "-1": [0]}}, {"gradient_checkpointing": True}])
def test_a_model_that_was_changed_gives_what_its_encoder_gives(keys):
    model = build("bert_classification", **keys).eval()
    inputs = texts(*ROWS)
    assert torch.allclose(model.pool(**inputs), model.encode(**inputs).pooler_output, atol=1e-6)
    model.train()
    model(**inputs).sum().backward()
    assert model.bert.embeddings.word_embeddings.weight.grad.abs().sum() > 0


def test_other_architectures_and_decoders_are_left_to_themselves():
    assert not first_token.fits(ElectraModel(ElectraConfig(embedding_size=8, **TINY)))
    assert not first_token.fits(encoder(BertModel, BertConfig, is_decoder=True))


def test_dropped_attention_works_with_one_query():
    network = encoder(BertModel, BertConfig, attention_probs_dropout_prob=0.5).train()
    mask = texts(*ROWS)["attention_mask"][:, None, None, :]
    torch.manual_seed(5)
    ids = texts(*ROWS)["input_ids"]
    found = torch.stack([first_token.pooled(network, ids, mask, None) for _ in range(4)])
    assert found.isfinite().all()
    assert found.std(dim=0).max() > 0
