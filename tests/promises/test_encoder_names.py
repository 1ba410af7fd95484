"""Names of encoders, and of what reads their data, that stand in users' configs: they may become more, never fewer."""

from __future__ import annotations

from xdpx.config import catalogue

NAMES = {
    "model": {
        "roberta_classification", "albert_classification", "electra_classification", "deberta_classification",
        "albert_lm", "albert_pretrain",
        "modernbert_classification", "bert_classification_concat", "bert_classification_self_attn",
        "bert_classification_rezero", "bert_lm_rezero", "bert_pretrain_rezero", "bert_regression", "bert_token",
        "bert_qa", "sbert_nli", "bert_dpr_qa",
    },
    "loss": {"tagging", "bert_qa", "bert_dpr", "mse"},
    "processor": {"bert_token", "bert_qa", "bert_dpr", "sbert_nli", "bert_pair_siamese"},
    "loader": {"tagged", "qa", "dpr"},
    "parser": {"conll", "squad"},
}  # fmt: skip
DOCUMENTED = {
    "albert_classification": {"embedding_size": 128, "num_hidden_groups": 1, "inner_group_num": 1, "gap_size": 0},
    "bert_classification_concat": {"highway_layers": [-1, -4, -7, -10]},
    "bert_classification_self_attn": {"attn_hidden_size": 100, "output_dropout_prob": 0.0},
    "bert_dpr_qa": {"q_pretrained_model": None, "p_pretrained_model": None, "bert_strict_size": True},
}


def test_no_encoder_is_lost() -> None:
    for kind, names in NAMES.items():
        assert set(catalogue.names(kind)) >= names


def test_documented_keys_keep_their_defaults() -> None:
    for name, keys in DOCUMENTED.items():
        defaults = {item.key: item.default for item in catalogue.entry("model", name).parameters}
        assert {key: defaults[key] for key in keys} == keys
    lengths = {item.key: item.default for item in catalogue.entry("processor", "bert_dpr").parameters}
    assert (lengths["max_question_length"], lengths["max_passage_length"]) == (30, 300)
