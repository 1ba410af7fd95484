"""Names, keys and defaults of distillation, which stand in users' configs: they may become more, never others."""

from __future__ import annotations

import pytest

from xdpx.config import catalogue

KEYS = {
    "static_distill": {"distill_temperature": 1.0, "gold_loss_lambda": 0.0, "negative_classes_in_f1": [0]},
    "distill": {"distill_temperature": 1.0, "gold_loss_lambda": 0.0},
    "bce_distill": {"distill_temperature": 1.0, "gold_loss_lambda": 0.0},
    "minilm": {"relation_heads": None, "distilled_layer": -1},
    "tinybert": {
        "lm_weight": 1.0, "attention_distill": True, "hidden_distill": True, "mlm_predict_distill": False,
        "nsp_predict_distill": False,
    },
    "tinybert_td": {
        "lm_weight": 1.0, "attention_distill": True, "hidden_distill": True, "mlm_predict_distill": False,
        "nsp_predict_distill": False, "cls_predict_distill": True, "distill_temperature": 1.0,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", KEYS)
def test_a_loss_of_distillation_keeps_its_keys_and_defaults(name: str) -> None:
    declared = {item.key: item.default for item in catalogue.entry("loss", name).parameters}
    assert {key: declared.get(key, "gone") for key in KEYS[name]} == KEYS[name]


def test_the_task_takes_a_teacher_and_a_student_with_their_own_keys() -> None:
    declared = {item.key: item.registry for item in catalogue.entry("task", "distill").parameters}
    assert {"teacher_model": "model", "student_model": "model", "loss": "loss"}.items() <= declared.items()
    assert "model" not in declared


@pytest.mark.parametrize("kind", ["loader", "processor"])
def test_texts_with_logits_keep_their_names(kind: str) -> None:
    assert set(catalogue.names(kind)) >= {"single_with_logits", "pair_with_logits"}


def test_mixed_granularity_keeps_its_names_keys_and_defaults() -> None:
    assert set(catalogue.names("loader")) >= {"single_mix", "pair_mix"}
    assert set(catalogue.names("processor")) >= {"bert_single_mix", "bert_pair_mix"}
    assert set(catalogue.names("task")) >= {"freelb_cnn", "freelb_cnn_distill"}
    defaults = {item.key: item.default for item in catalogue.entry("model", "bert_mix").parameters}
    documented = {
        "prediction": "simple", "pooling": "max", "output_dropout_prob": 0.0, "word_emb": True, "word_emb_proj": None,
        "char_emb": True, "bert_seq_layer": -1, "char_layer_norm": True, "char_hidden_size": 768, "concat_cls": True,
        "fusion": True, "fusion_hidden_size": 150, "fusion_layers": 2, "fusion_activation": False, "pooler": False,
        "seq_pooler": False, "char_encoder_layers": 1, "kernel_sizes": [3], "residual": False, "encoder_layers": 3,
        "encoder_hidden_size": 200,
    }  # fmt: skip
    assert {key: defaults[key] for key in documented} == documented


def test_what_reads_for_and_what_learns_from_a_bert_keeps_its_name() -> None:
    assert set(catalogue.names("processor")) >= {"bert_single_with_logits", "bert_pair_with_logits"}
    students = {"minilm", "tinybert_for_gd", "tinybert_for_td", "tinybert_encoder_only_distill"}
    assert set(catalogue.names("model")) >= students
