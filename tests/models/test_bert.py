import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification, BertConfig, BertModel

from xdpx.config.faults import ConfigError
from xdpx.inference.tracing import trace
from xdpx.models import models
from xdpx.models.pytorch.positional import Positional

TINY = {
    "hidden_size": 8,
    "num_attention_heads": 2,
    "num_hidden_layers": 3,
    "intermediate_size": 16,
    "max_position_embeddings": 12,
    "vocab_size": 30,
}


def build(name="bert_classification", pretrained_model=None, **keys):
    kind = models[name]
    classes = {"num_classes": 3} if name == "bert_classification" else {}
    sizes = TINY if pretrained_model is None else {}
    torch.manual_seed(0)
    return kind(kind.Parameters(pretrained_model=pretrained_model, **{**sizes, **classes, **keys}))


def texts(*rows, pad_to=0):
    length = max(pad_to, *map(len, rows))
    ids = torch.tensor([[*row, *[0] * (length - len(row))] for row in rows])
    return {"input_ids": ids, "attention_mask": ids != 0}


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(1)
    BertModel(BertConfig(**TINY)).save_pretrained(tmp_path / "hf")
    return str(tmp_path / "hf")


def test_padding_is_never_attended_to():
    model = build().eval()
    rows = ([2, 5, 6, 3], [2, 3])
    assert torch.allclose(model(**texts(*rows)), model(**texts(*rows, pad_to=11)), atol=1e-6)
    assert torch.allclose(model(**texts(*rows))[1], model(**texts(rows[1]))[0], atol=1e-6)


def test_an_encoder_is_traced_without_looking_whether_there_is_padding(capsys):
    model = build().eval()
    batches = [tuple(texts(*rows).values()) for rows in ([[2, 5, 3]], [[2, 5, 6, 3], [2, 3]])]
    trace(Positional(model, ["input_ids", "attention_mask"]), batches, what="Bert")
    told = capsys.readouterr()
    assert not told.out + told.err


def test_a_text_longer_than_the_model_has_positions_is_refused():
    with pytest.raises(ConfigError, match="13.*12"):
        build()(**texts(list(range(1, 14))))


def test_data_longer_than_the_model_has_positions_is_refused_before_training():
    with pytest.raises(ConfigError, match="max_len.*64.*12"):
        build(max_len=64)


def test_pretrained_model_must_be_given_even_when_it_is_null():
    with pytest.raises(ValueError, match="pretrained_model"):
        models["bert_classification"].Parameters()


def test_the_architecture_and_the_weights_of_a_folder_are_taken_over(folder):
    model = build(pretrained_model=folder, vocab_size=30)
    model.load_pretrained(torch.load)
    theirs = BertModel.from_pretrained(folder).state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in model.bert.state_dict().items())
    assert model.config.num_hidden_layers == 3


def test_old_names_are_understood(folder, tmp_path):
    theirs = BertModel.from_pretrained(folder).state_dict()
    ends = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    old = {f"bert.{name}": value for name, value in theirs.items()}
    for new_end, old_end in ends.items():
        old = {name.replace(new_end, old_end): value for name, value in old.items()}
    torch.save({"state_dict": old}, tmp_path / "hf" / "old.bin")
    model = build(pretrained_model=str(tmp_path / "hf" / "old.bin"))
    model.load_pretrained(torch.load)
    assert all(torch.equal(value, theirs[name]) for name, value in model.bert.state_dict().items())


def test_the_classifier_is_new_unless_asked_for(folder, tmp_path):
    first = build(pretrained_model=folder)
    torch.nn.init.constant_(first.classifier.bias, 7.0)
    torch.save(first.state_dict(), tmp_path / "hf" / "checkpoint-1.pt")
    source = str(tmp_path / "hf" / "checkpoint-1.pt")
    for wanted, expected in ((False, 0.0), (True, 7.0)):
        model = build(pretrained_model=source, load_cls_weights=wanted)
        model.load_pretrained(torch.load)
        assert model.classifier.bias.tolist() == [expected] * 3


def test_what_was_missing_and_unexpected_is_said(folder, tmp_path, capsys):
    weights = BertModel.from_pretrained(folder).state_dict()
    del weights["pooler.dense.bias"]
    save_file({**weights, "extra.weight": torch.zeros(1)}, tmp_path / "hf" / "model.safetensors")
    build(pretrained_model=folder).load_pretrained(torch.load)
    said = "".join(capsys.readouterr())
    assert "missing: bert.pooler.dense.bias, classifier.weight, classifier.bias" in said
    assert "unexpected: extra.weight" in said


def test_a_file_that_lacks_most_of_the_encoder_is_refused_unless_what_fits_is_asked_for(folder, tmp_path):
    weights = BertModel.from_pretrained(folder).state_dict()
    few = {name: value for name, value in weights.items() if "LayerNorm" in name}
    save_file(few, tmp_path / "hf" / "model.safetensors")
    with pytest.raises(ConfigError, match=r"lacks \d+ of the \d+ weights of the encoder: bert\.embeddings.*num_hidden"):
        build(pretrained_model=folder).load_pretrained(torch.load)
    model = build(pretrained_model=folder, strict_size=False)
    model.load_pretrained(torch.load)
    name = next(iter(few))
    assert torch.equal(model.bert.state_dict()[name], few[name])
    assert "bert.embeddings.word_embeddings.weight" in model.not_in_file


def test_layers_that_a_file_lost_are_told(folder, tmp_path, capsys):
    weights = BertModel.from_pretrained(folder).state_dict()
    kept = {name: value for name, value in weights.items() if ".layer.2." not in name}
    save_file(kept, tmp_path / "hf" / "model.safetensors")
    build(pretrained_model=folder).load_pretrained(torch.load)
    said = "".join(capsys.readouterr())
    assert "warning: " in said
    assert "16 weights of some layers are missing, and random at first: bert.encoder.layer.2." in said


def test_a_classifier_that_was_asked_for_and_would_be_random_is_refused(folder, tmp_path, capsys):
    with pytest.raises(ConfigError, match=r"load_cls_weights: is true, .* lacks classifier\.weight, classifier\.bias"):
        build(pretrained_model=folder, load_cls_weights=True).load_pretrained(torch.load)
    build(pretrained_model=folder, load_cls_weights=True, strict_size=False).load_pretrained(torch.load)
    tagger = build("bert_token", pretrained_model=folder, num_classes=3)
    torch.save(tagger.state_dict(), tmp_path / "hf" / "tagger.pt")
    source = str(tmp_path / "hf" / "tagger.pt")
    build("bert_token", source, num_classes=3, load_cls_weights=True, use_crf=True).load_pretrained(torch.load)
    assert "warning" not in "".join(capsys.readouterr())


def test_another_vocabulary_is_refused_or_gets_new_embeddings(folder):
    with pytest.raises(ConfigError, match="31 in the data.*30 tokens"):
        build(pretrained_model=folder, vocab_size=31)
    model = build(pretrained_model=folder, vocab_size=31, strict_size=False)
    model.load_pretrained(torch.load)
    assert model.bert.get_input_embeddings().weight.shape == (31, 8)


def test_a_width_that_the_weights_do_not_have_is_refused(folder):
    with pytest.raises(ConfigError, match="another size"):
        build(pretrained_model=folder, intermediate_size=24).load_pretrained(torch.load)


def test_a_folder_without_weights_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"contains no model.safetensors"):
        build(pretrained_model=str(tmp_path), **TINY).load_pretrained(torch.load)


def test_weights_of_something_else_are_refused(tmp_path):
    torch.save({"w": torch.zeros(2)}, tmp_path / "other.pt")
    with pytest.raises(ConfigError, match="no weight of this model"):
        build(pretrained_model=str(tmp_path / "other.pt"), **TINY).load_pretrained(torch.load)


@pytest.mark.parametrize(
    ("name", "peer"),
    [("bert_classification", AutoModelForSequenceClassification), ("bert_lm", AutoModelForMaskedLM)],
)
def test_hugging_face_reads_what_is_written(name, peer, tmp_path):
    model = build(name).eval()
    (tmp_path / "config.json").write_text(model.resource_files()["config.json"])
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    theirs = peer.from_pretrained(tmp_path).eval()
    rows = texts([2, 5, 6, 3], [2, 3])
    logits = theirs(**rows).logits
    ours = model(**rows, masked_positions=torch.arange(8)) if name == "bert_lm" else model(**rows)
    seen = rows["attention_mask"].flatten() if name == "bert_lm" else slice(None)
    assert torch.allclose(ours[seen], logits.reshape(ours.shape)[seen], atol=1e-5)


def test_only_masked_positions_are_projected():
    model = build("bert_lm").eval()
    rows = texts([2, 5, 6, 3], [2, 3])
    assert model(**rows, masked_positions=torch.tensor([1, 4])).shape == (2, 30)
    assert model.cls.predictions.decoder.weight is model.bert.get_input_embeddings().weight


def rates(model):
    return {group["name"]: round(group["lr"], 6) for group in model.parameter_groups(1.0)}


def test_layers_learn_slower_the_deeper_they_lie():
    found = rates(build(layer_lr_decay=0.5, top_lr_ratio=10.0, keep_emb_lr=False))
    assert [found[f"layer {number}"] for number in range(3)] == [0.25, 0.5, 1.0]
    assert (found["embeddings"], found["top"]) == (0.125, 10.0)
    assert rates(build(layer_lr_decay=0.5))["embeddings"] == 1.0


def test_biases_and_norms_never_decay_and_bert_may_decay_apart():
    groups = {group["name"]: group for group in build(bert_wd=0.3).parameter_groups(1.0)}
    assert {name: group.get("weight_decay") for name, group in groups.items()} == {
        "embeddings": 0.3,
        "embeddings, no decay": 0.0,
        "layers": 0.3,
        "layers, no decay": 0.0,
        "top": None,
        "top, no decay": 0.0,
    }


def test_a_fixed_encoder_trains_the_top_only():
    assert set(rates(build(fix_lm=True))) == {"top", "top, no decay"}


def test_gradient_checkpointing_changes_no_gradient():
    found = []
    for chosen in (False, True):
        model = build(gradient_checkpointing=chosen, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0).train()
        model(**texts([2, 5, 6, 3])).square().sum().backward()
        found.append(model.bert.embeddings.word_embeddings.weight.grad)
    assert torch.allclose(*found, atol=1e-6)


def test_pruned_heads_are_gone_from_the_network_and_from_weights(folder, tmp_path):
    heads = {"0": [1], "-1": [0]}
    whole, pruned = build(pretrained_model=folder), build(pretrained_model=folder, pruned_heads=heads)
    whole.load_pretrained(torch.load)
    pruned.load_pretrained(torch.load)
    for layer, kept in ((0, slice(0, 4)), (2, slice(4, 8))):
        full, small = (each.bert.encoder.layer[layer].attention for each in (whole, pruned))
        assert torch.equal(small.self.query.weight, full.self.query.weight[kept])
        assert torch.equal(small.output.dense.weight, full.output.dense.weight[:, kept])
    assert pruned(**texts([2, 5, 3])).isfinite().all()
    torch.save(pruned.state_dict(), tmp_path / "hf" / "pruned.pt")
    again = build(pretrained_model=str(tmp_path / "hf" / "pruned.pt"), pruned_heads=heads)
    again.load_pretrained(torch.load)
    assert torch.equal(
        again.bert.encoder.layer[0].attention.self.key.bias, pruned.bert.encoder.layer[0].attention.self.key.bias
    )


@pytest.mark.parametrize("heads", [{"3": [0]}, {"0": [0, 1]}, {"0": [2]}])
def test_heads_that_cannot_go_are_refused(heads):
    with pytest.raises(ConfigError, match="pruned_heads"):
        build(pruned_heads=heads)


def test_a_size_that_is_at_its_default_and_so_yields_to_the_folder_is_named(folder):
    path = Path(folder, "config.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"hidden_dropout_prob": 0.0}))
    idle = build(pretrained_model=folder, hidden_dropout_prob=0.1).idle_keys()
    assert "extra_config: {hidden_dropout_prob: 0.1}" in idle["hidden_dropout_prob"]
    given = build(pretrained_model=folder, extra_config={"hidden_dropout_prob": 0.1}).idle_keys()
    assert "hidden_dropout_prob" not in given


def test_a_changed_dropout_wins_over_the_folder_and_extra_config_over_all(folder):
    model = build(pretrained_model=folder, hidden_dropout_prob=0.3, extra_config={"hidden_act": "relu"})
    assert json.loads(model.resource_files()["config.json"])["hidden_dropout_prob"] == 0.3
    assert model.config.hidden_act == "relu"
