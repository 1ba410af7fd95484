import numpy as np
import pytest
import torch

from xdpx.losses import losses
from xdpx.models import models
from xdpx.models.pytorch.electra_pretrain import draw

TINY = {
    "hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 32,
    "max_position_embeddings": 12, "vocab_size": 30,
}  # fmt: skip


def build(**keys):
    kind = models["electra_pretrain"]
    torch.manual_seed(0)
    return kind(kind.Parameters(**{"pretrained_model": None, **TINY, **keys}))


def batch():
    ids = torch.tensor([[2, 4, 6, 7, 3], [2, 9, 4, 3, 0]])
    given = {
        "input_ids": ids, "attention_mask": ids != 0, "masked_positions": torch.tensor([1, 7]),
        "noise": torch.tensor([0.2, 0.9]),
    }  # fmt: skip
    return {"net_input": given, "target": torch.tensor([5, 8])}


def test_tokens_are_drawn_by_their_share():
    logits = torch.tensor([[0.1, 0.2, 0.7]]).log()
    for noise, token in [(0.0, 0), (0.099, 0), (0.11, 1), (0.299, 1), (0.31, 2), (0.99999994, 2)]:
        assert draw(logits, torch.tensor([noise])).tolist() == [token]


def test_what_was_drawn_stands_where_the_masks_were():
    model = build().eval()
    seen = []
    model.bert.register_forward_pre_hook(lambda _, args, kwargs: seen.append(kwargs["input_ids"]), with_kwargs=True)
    _, drawn, told = model(**batch()["net_input"])
    expected = batch()["net_input"]["input_ids"]
    expected[0, 1], expected[1, 2] = drawn
    assert torch.equal(seen[-1], expected)
    assert told.shape == (2, 5)


def test_the_generator_is_narrow_and_reads_the_same_word_vectors():
    model = build(generator_size=0.5)
    assert model.generator.encoder.config.hidden_size == 8
    assert model.generator.encoder.config.num_attention_heads == 2
    names = [name for name, _ in model.named_parameters() if "word_embeddings" in name]
    assert names == ["bert.embeddings.word_embeddings.weight"]


def test_the_layers_of_the_generator_are_trained_like_those_of_the_encoder():
    model = build(layer_lr_decay=0.5, keep_emb_lr=False, top_lr_ratio=10.0, bert_wd=0.3)
    of_weight = {id(one): group for group in model.parameter_groups(1.0) for one in group["params"]}
    found = {name: of_weight[id(one)] for name, one in model.named_parameters() if name.endswith("weight")}
    rates = {name: (group["lr"], group.get("weight_decay")) for name, group in found.items() if "Norm" not in name}
    own = "generator.encoder.encoder.layer."
    assert rates["generator.narrow.weight"] == rates["generator.encoder.embeddings.position_embeddings.weight"]
    assert rates["generator.narrow.weight"] == (0.25, 0.3)
    assert [rates[f"{own}{number}.output.dense.weight"] for number in range(2)] == [(0.5, 0.3), (1.0, 0.3)]
    assert rates["generator.dense.weight"] == rates["dense.weight"] == (10.0, None)


def test_only_the_generators_own_loss_trains_it():
    kind = losses["electra"]
    model = build(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    kind(kind.Parameters(lm_weight=0.0))(model, batch())[0].backward()
    assert not any(float(weight.grad.abs().max()) for weight in model.generator.parameters() if weight.grad is not None)
    assert float(model.replaced.weight.grad.abs().max()) > 0


def test_the_loss_is_that_of_each_text_averaged_over_its_tokens():
    kind = losses["electra"]
    model, one = build().eval(), kind(kind.Parameters(rtd_weight=2.0))
    with torch.no_grad():
        guesses, drawn, told = model(**batch()["net_input"])
        loss_sum, count, facts = one(model, batch())
    wrong = np.zeros((2, 5))
    wrong[0, 1], wrong[1, 2] = drawn[0] != 5, drawn[1] != 8
    nats = np.log1p(np.exp(np.where(wrong, -told, told)))
    expected = -guesses.log_softmax(-1)[[0, 1], [5, 8]].sum() + 2 * (nats[0].mean() + nats[1, :4].mean())
    assert count == 2
    assert float(loss_sum) == pytest.approx(float(expected), rel=1e-5)
    sums = {name: float(value.detach()) for name, value in one.predictions(model, batch()).items()}
    assert one.metrics(sums).keys() == kind.metric_names.keys()
    assert int(facts["rtd_count"]) == 9
