"""Two encoders that begin alike, and the choice among the passages of a batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertConfig, BertModel

from xdpx.losses import losses
from xdpx.models import models

SIZES = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8, "vocab_size": 12}
GIVEN = {
    "question_ids": torch.tensor([[2, 5, 3], [2, 6, 3]]), "question_mask": torch.ones(2, 3),
    "passage_ids": torch.tensor([[2, 7, 8, 3], [2, 9, 3, 0]]),
    "passage_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]),
}  # fmt: skip


def build(**keys: Any) -> Any:
    torch.manual_seed(0)
    return models["bert_dpr_qa"](models["bert_dpr_qa"].Parameters(**keys)).eval()


def saved(folder: Path, seed: int) -> str:
    torch.manual_seed(seed)
    BertModel(BertConfig(**SIZES)).save_pretrained(folder)
    return str(folder / "model.safetensors")


def test_both_encoders_begin_with_one_s_weights_unless_passages_have_their_own(tmp_path: Path) -> None:
    questions, passages = saved(tmp_path / "q", 1), saved(tmp_path / "p", 2)
    name = "embeddings.word_embeddings.weight"
    for keys, expected in (({}, questions), ({"p_pretrained_model": passages}, passages)):
        model = build(q_pretrained_model=questions, **keys)
        model.load_pretrained(load_file)
        state = model.state_dict()
        assert torch.equal(state[f"bert.{name}"], load_file(questions)[name])
        assert torch.equal(state[f"passage.{name}"], load_file(expected)[name])


def test_a_trained_model_is_read_back_as_it_is(tmp_path: Path) -> None:
    model = build(**SIZES)
    torch.nn.init.normal_(model.passage.embeddings.word_embeddings.weight)
    found = model.adapt(model.state_dict())
    assert all(torch.equal(found[name], value) for name, value in model.state_dict().items())


def test_two_architectures_are_refused() -> None:
    known = models["bert_dpr_qa"].Parameters(q_auto_config="a", p_auto_config="b")
    assert [key for key, _ in known.conflicts()] == ["p_auto_config"]
    assert not models["bert_dpr_qa"].Parameters(q_auto_config="a", p_auto_config="a").conflicts()


def test_weights_of_tensorflow_may_be_those_of_one_encoder_but_must_be_named() -> None:
    kind = models["bert_dpr_qa"].Parameters
    assert [key for key, _ in kind(from_tf=True).conflicts()] == ["from_tf"]
    for key in ("pretrained_model", "q_pretrained_model", "p_pretrained_model"):
        assert not kind(**{key: "bert_model.ckpt"}, from_tf=True).conflicts()


def test_a_table_of_names_in_tensorflow_holds_for_both_encoders(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{name}.ckpt.index") for name in "qp"]
    theirs = {path: {"own/words": torch.full((12, 8), float(number))} for number, path in enumerate(paths)}
    for path in paths:
        Path(path).touch()
    names = [["own/words", "bert.embeddings.word_embeddings.weight"]]
    model = build(q_pretrained_model=paths[0], p_pretrained_model=paths[1], from_tf=True, tf_names=names, **SIZES)
    model.load_pretrained(theirs.__getitem__)
    for encoder, path in ((model.bert, paths[0]), (model.passage, paths[1])):
        assert torch.equal(encoder.embeddings.word_embeddings.weight, theirs[path]["own/words"])


def test_every_question_chooses_among_the_passages_of_the_batch() -> None:
    model = build(initializer_range=0.5, **SIZES)  # 0.02 makes all vectors one but for rounding
    loss = losses["bert_dpr"](losses["bert_dpr"].Parameters(temperature=0.5))
    found = loss.predictions(model, {"net_input": GIVEN})
    questions, passages = torch.nn.functional.normalize(model(**GIVEN), dim=-1).unbind(dim=1)
    log_prob = (questions @ passages.T / 0.5).log_softmax(dim=-1)
    assert torch.allclose(found["loss_sum"], -log_prob.diagonal().sum(), atol=1e-5)
    ranks = (log_prob > log_prob.diagonal()[:, None]).sum(dim=1) + 1
    assert ranks.tolist() == [2, 1]
    scores = loss.metrics({name: value.detach().numpy() for name, value in found.items()})
    assert scores["in_batch_mrr"] == pytest.approx(float((1 / ranks).mean()))


@pytest.mark.parametrize(
    "said", [{"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, {"pooling_mode": "mean"}]
)
def test_another_pooling_than_that_of_the_weights_is_told(said: dict[str, Any], tmp_path: Path, capsys: Any) -> None:
    source = saved(tmp_path, 1)
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling/config.json").write_text(json.dumps({"word_embedding_dimension": 8, **said}))
    for ours in ("mean", "first"):
        kind = models["simcse"]
        keys = {"pretrained_model": source, "sentence_pooling": ours}
        kind(kind.Parameters(**keys)).load_pretrained(load_file)
        told = "'mean' of the tokens (1_Pooling/config.json), but 'first' here. Set sentence_pooling: mean."
        assert (told in "".join(capsys.readouterr())) == (ours == "first")
