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


def test_what_reads_for_and_what_learns_from_a_bert_keeps_its_name() -> None:
    assert set(catalogue.names("processor")) >= {"bert_single_with_logits", "bert_pair_with_logits"}
    students = {"minilm", "tinybert_for_gd", "tinybert_for_td", "tinybert_encoder_only_distill"}
    assert set(catalogue.names("model")) >= students
