"""x-train whose processes share out weights (`strategy: fsdp`, `deepspeed`) does what one process does. Over gloo."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.journeys.test_many_devices import SCORING, TRAIN, make_data, table, together, weights
from tests.preloaded import SHARDING
from tests.tiers import some

UPDATES = 8
COMMON: dict[str, Any] = {
    **TRAIN, "max_update": UPDATES, "eval_interval": 5, "batch_size": 9, "update_freq": 2, "clip_norm": 0.5,
}  # fmt: skip
BERT: dict[str, Any] = {
    "__parent__": "texts/meta", "data_dir": "texts", "model": "bert_classification", "pretrained_model": None,
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2,
    "max_position_embeddings": 32, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
    "output_dropout_prob": 0.0, "initializer_range": 0.2, "learning_rate": 0.003,
    "adam_eps": 1e-4,  # a bias of keys has no gradient but rounding, which Adam would blow up
}  # fmt: skip
OF_THE_CNN = ("embedding_dim", "dropout")
KINDS: dict[str, dict[str, Any]] = {
    "cnn": {},
    "bert": BERT,
    "recomputed": {**BERT, "gradient_checkpointing": True, "swa_start": 3, "ema_decay": 1.0, "layer_lr_decay": 0.8},
    "thawing": {**BERT, "callbacks": [{"freeze": {"until": {"layer.0.": 4, "word_embeddings": None}}}]},
    **{name: {"optimizer": name} for name in ("lamb", "adafactor", "adagrad", "sgd")},
    "rmsprop": {"optimizer": "rmsprop", "learning_rate": 0.003},  # its first steps are long: rounding grows with them
    "bf16": {"bf16": True, "optimizer": "adamw_torch"},
}
FSDP = {"strategy": "fsdp"}
SHARED: dict[str, tuple[str, dict[str, Any]]] = {
    **{f"{kind}-fsdp": (kind, FSDP) for kind in KINDS},
    **{f"bert-zero-{stage}": ("bert", {"strategy": "deepspeed", "deepspeed_zero_stage": stage}) for stage in (1, 2, 3)},
    "bf16-zero-2": ("bf16", {"strategy": "deepspeed", "deepspeed_zero_stage": 2, "deepspeed_bf16": True}),
    "bf16-zero-0": ("bf16", {"strategy": "deepspeed", "deepspeed_bf16": True}),
}
NAMES = some(SHARED, ["bert-fsdp", "lamb-fsdp", "bf16-zero-2"])
"""Optimizers that look at whole weights, or rows of them, stand for the others, and stage 2 for all stages: it keeps
weights gathered as stage 1 does, and exchanges with every pass as stage 3 does. test_equal_devices.py trains a cnn."""
BEGUN = some(["begun-by-one", "begun-by-two"], ["begun-by-one"])
"""Who began what another number of processes ends. test_equal_devices.py goes on alone with what four began."""
PRECISE_TO = {"bf16": 2e-3}

pytestmark = pytest.mark.slow


def line(name: str, kind: str, **more: Any) -> list[str]:
    """Write a config, and return the words that train by it."""
    values = {**COMMON, "save_dir": name, **KINDS[kind], **more}
    absent = OF_THE_CNN if values["model"] != "cls_cnn" else ("bf16",) if "deepspeed_bf16" in more else ()
    kept = {key: value for key, value in values.items() if key not in absent}
    Path(f"{name}.json").write_text(json.dumps(kept))
    return ["x-train", f"{name}.json"]


def assert_near(name: str, other: str, atol: float = 1e-5) -> None:
    one, two = weights(name, UPDATES), weights(other, UPDATES)
    assert one.keys() == two.keys()
    for key, value in one.items():
        torch.testing.assert_close(value, two[key], rtol=0, atol=atol, msg=lambda text, at=key: f"{at}: {text}")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where one process has trained each kind, and two have shared it out; each went on with what the other began."""
    folder, before = tmp_path_factory.mktemp("shared"), Path.cwd()
    os.chdir(folder)
    try:
        make_data(folder)
        prepro = json.loads(Path("prepro.json").read_text())
        Path("for-bert.json").write_text(json.dumps({**prepro, "data_dir": "texts", "processor": "bert_single"}))
        begun, kinds = {"train_steps": 5, **FSDP}, dict.fromkeys(SHARED[name][0] for name in NAMES)
        alone = [["x-prepro", "prepro.json"], ["x-prepro", "for-bert.json"], *(line(kind, kind) for kind in kinds)]
        both = [line(name, SHARED[name][0], **SHARED[name][1]) for name in NAMES]
        both.append(line("onward-by-two", "bert", save_dir="begun-by-one", **FSDP))
        onward = []
        if "begun-by-two" in BEGUN:
            both.append(line("begun-by-two", "bert", **begun))
            onward = [line("onward-by-one", "bert", save_dir="begun-by-two")]
        for who in ("bert", "bert-fsdp"):
            score = {"save_dir": who, "valid_subset": ["dev"], "cuda": False, "save_to_file": f"{who}-scores.tsv"}
            Path(f"{who}-eval.json").write_text(json.dumps(score))
            predict = {"save_dir": who, "cuda": False, "predict_file_map": {"raw/dev.txt": f"{who}-predicted.tsv"}}
            Path(f"{who}-pred.json").write_text(json.dumps(predict))
        looking = [[f"x-{what}", f"{who}-{what}.json"] for who in ("bert", "bert-fsdp") for what in ("eval", "pred")]
        together(
            folder, ([*alone, line("begun-by-one", "bert", **begun)], 1),
            (both, 2), ([*onward, *looking], 1),
            modules=(*SHARDING, *SCORING, "transformers.models.bert.modeling_bert", "xdpx.processors.bert"),
        )  # fmt: skip
    finally:
        os.chdir(before)
    return folder


@pytest.fixture(autouse=True)
def _there(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


@pytest.mark.parametrize("name", NAMES)
def test_two_processes_that_share_out_weights_end_with_those_of_one(name: str) -> None:
    kind = SHARED[name][0]
    assert_near(name, kind, PRECISE_TO.get(kind, 1e-5))


@pytest.mark.parametrize("begun", BEGUN)
def test_what_one_number_of_processes_began_another_ends(begun: str) -> None:
    assert_near(begun, "bert")
    assert "continuing at step 5" in Path(begun, "log.txt").read_text()


@pytest.mark.parametrize("name", ["train.log.tsv", "valid.log.tsv"])
def test_scores_and_logs_are_those_of_one_process(name: str) -> None:
    alone, shared = table("bert", name), table("bert-fsdp", name)
    assert [row["step"] for row in shared] == [row["step"] for row in alone]
    for one, other in zip(alone, shared, strict=True):
        for column in one.keys() - {"ups", "wps", "train_wall"}:
            assert float(other[column]) == pytest.approx(float(one[column]), abs=1e-4), column


def test_evaluation_and_prediction_read_what_was_kept_of_a_shared_run() -> None:
    (alone,), (shared,) = (table(".", f"{who}-scores.tsv") for who in ("bert", "bert-fsdp"))
    for column in alone.keys() - {"checkpoint", "split"}:
        assert float(shared[column]) == pytest.approx(float(alone[column]), abs=1e-4), column
    alone_rows, shared_rows = (table(".", f"{who}-predicted.tsv") for who in ("bert", "bert-fsdp"))
    assert [row["pred"] for row in shared_rows] == [row["pred"] for row in alone_rows]


def test_one_process_is_told_that_it_has_nobody_to_share_with() -> None:
    assert "strategy fsdp: there is one process" in Path("begun-by-one/log.txt").read_text()
