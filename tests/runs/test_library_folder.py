"""What a run of an encoder leaves for transformers: the same weights, labels, tokens and probabilities."""

from __future__ import annotations

import json
import random
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoModel, AutoTokenizer, pipeline

import xdpx
from xdpx.commands.script import main as script
from xdpx.config.faults import ConfigError
from xdpx.inference.transformers_folder import own_reading
from xdpx.loaders.texts import SingleLoader
from xdpx.models.pytorch.library_form import Inexpressible, form_of

WORDS = ["good", "bad", "film", "plot", "very", "not", "the", "a", "##ly", "un"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
SIZES |= {"max_position_embeddings": 32}


def text(drawn: random.Random, most: int) -> str:
    return " ".join(drawn.choice(["Good", "badly", "film,", "plot", "un", "VERY", "x", "\u00e9"]) for _ in range(most))


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, drawn = tmp_path_factory.mktemp("desk"), random.Random(0)
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    for kind in ("single", "pair", "tags", "several", "number"):
        (folder / kind).mkdir()
        for split, rows in (("train", 48), ("dev", 16)):
            made = []
            for _ in range(rows):
                one, other, label = text(drawn, 4), text(drawn, 3), drawn.choice(["neg", "pos"])
                tags = "".join(f"{word} {drawn.choice(['O', 'B-X'])}\n" for word in one.split()) + "\n"
                made.append(
                    {
                        "single": f"{one}\t{label}\n",
                        "several": f"{one}\t{drawn.choice(['a', 'b,a', ''])}\n",
                        "number": f"{one}\t{drawn.choice([1, 2.5])}\n",
                        "pair": f"{one}\t{other}\t{label}\n",
                        "tags": tags,
                    }[kind]
                )
            (folder / kind / f"{split}.txt").write_text("".join(made), encoding="utf-8")
    return folder


def prepare(desk: Path, kind: str, **keys) -> None:
    loader = {"tags": "tagged", "bytes": "tagged", "several": "single", "number": "single"}.get(kind, kind)
    more = {"label_separator": ","} if kind == "several" else {}
    more |= {"target_type": "number"} if kind == "number" else {}
    more |= {"tokenizer": "auto", "vocab_file": desk / "bytes.json"} if kind == "bytes" else {}
    more |= {"loader": loader, "parser": "conll" if loader == "tagged" else "csv"}
    source = desk / ("tags" if kind == "bytes" else kind)
    xdpx.preprocess(
        {"data_source": source, "data_dir": desk / f"data_{kind}", "max_len": 17, "lower": True,
         "processor": f"bert_{'token' if loader == 'tagged' else loader}", "tokenizer": "bert",
         "vocab_file": desk / "vocab.txt", "ignore_findings": ["unknown_tokens"], **more, **keys}
    )  # fmt: skip


def trained(desk: Path, kind: str, name: str, **keys) -> xdpx.TrainedRun:
    data = desk / f"data_{kind}"
    if not data.exists():
        prepare(desk, kind)
    config = {"__parent__": str(data / "meta"), "data_dir": data, "save_dir": desk / name, "learning_rate": 0.02}
    config |= {
        "model": "bert_classification",
        "loss": "cross_entropy",
        "batch_size": 8,
        "max_update": 8,
        "pretrained_model": None,
    }
    config |= {**SIZES, "eval_interval": 2, "log_interval": 2, "major_metric": "acc", "save_best_only": True, **keys}
    return xdpx.train(config)


def probabilities(run: xdpx.TrainedRun, folder: Path, texts: list, given: list) -> float:
    """Return the largest difference between ours and the library's; the labels must be the same."""
    pipe = pipeline("text-classification", str(folder), top_k=None, device=-1)
    worst = 0.0
    for one, other in zip(run.predict(texts), pipe(given, truncation=True), strict=True):
        assert one.label == max(other, key=lambda each: each["score"])["label"]
        worst = max(worst, *(abs(one.probabilities[each["label"]] - each["score"]) for each in other))
    return worst


def test_the_best_checkpoint_opens_as_a_pipeline_and_takes_no_room(desk: Path) -> None:
    run = trained(desk, "single", "single_run")
    folder, drawn = Path(run.save_dir) / "transformers", random.Random(1)
    assert (folder / "pytorch_model.bin").stat().st_ino == Path(run.checkpoint or "").stat().st_ino
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json", "pytorch_model.bin", "tokenizer.json", "tokenizer_config.json",
    ]  # fmt: skip
    texts = [*(text(drawn, 5) for _ in range(20)), text(drawn, 60), "", "[MASK] \u4e2d\u6587 \u00dcber"]
    assert probabilities(run, folder, texts, texts) < 1e-6
    config = json.loads((folder / "config.json").read_text())
    assert config["label2id"] == {label: index for index, label in enumerate(run.labels or [])}
    assert AutoTokenizer.from_pretrained(folder).model_max_length == 17


def test_a_run_that_goes_on_and_one_begun_anew_keep_the_folder_right(desk: Path) -> None:
    trained(desk, "single", "again_run", train_steps=4, save_full_checkpoint=True)
    for more in ({"resume": True}, {"overwrite": True}):
        run = trained(desk, "single", "again_run", save_full_checkpoint=True, **more)
        weights = Path(run.save_dir) / "transformers" / "pytorch_model.bin"
        assert weights.stat().st_ino == Path(run.checkpoint or "").stat().st_ino


def test_pairs_are_framed_and_cut_alike(desk: Path) -> None:
    run, drawn = trained(desk, "pair", "pair_run"), random.Random(2)
    pairs = [(text(drawn, drawn.randint(1, 12)), text(drawn, drawn.randint(1, 12))) for _ in range(30)]
    given = [{"text": one, "text_pair": other} for one, other in pairs]
    assert probabilities(run, Path(run.save_dir) / "transformers", pairs, given) < 1e-6


def test_tags_of_words_are_those_of_their_first_tokens(desk: Path) -> None:
    run = trained(desk, "tags", "tags_run", model="bert_token", loss="tagging", major_metric="acc")
    folder, words = str(Path(run.save_dir) / "transformers"), ["good", "film", "plot", "very"]
    found = pipeline("token-classification", folder, device=-1, ignore_labels=[])(" ".join(words))
    assert tuple(each["entity"] for each in found) == run.predict([words])[0].labels


@pytest.fixture(scope="module")
def of_bytes(desk: Path) -> xdpx.TrainedRun:
    """A tagger with a byte-level tokenizer, in whose tokens a space is a part of the word behind it."""
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    library.train_from_iterator(["Good film, badly plot un VERY Good"] * 9, trainer)
    library.save(str(desk / "bytes.json"))
    return trained(desk, "bytes", "bytes_run", model="bert_token", loss="tagging")


def test_words_of_a_byte_level_tokenizer_get_their_tags_within_a_text(of_bytes: xdpx.TrainedRun) -> None:
    texts = ["Good film, un VERY Good", "plot Good plot"]
    tokenizer = AutoTokenizer.from_pretrained(f"{of_bytes.save_dir}/transformers")
    ids = of_bytes.encode(texts)[0].samples.ragged("input_ids")
    assert [ids.row(row).tolist() for row in range(len(ids))] == tokenizer(texts)["input_ids"]
    tag = pipeline("token-classification", f"{of_bytes.save_dir}/transformers", device=-1, ignore_labels=[])
    pieces = [[one for one in tag(text) if one["index"] == 1 or one["word"][0] == "\u0120"] for text in texts]
    assert [tuple(one["entity"] for one in each) for each in pieces] == [one.labels for one in of_bytes.predict(texts)]


def test_an_older_run_reads_words_as_it_was_trained(desk: Path, of_bytes: xdpx.TrainedRun) -> None:
    for args in (desk / "bytes_run/prepro.args.py", desk / "data_bytes/args.py"):
        lines = args.read_text().splitlines(keepends=True)
        args.write_text("".join(line for line in lines if "space_before_words" not in line))
        (args.parent / "resources.manifest.json").unlink()
    old, texts = xdpx.load_run(desk / "bytes_run"), ["Good film, un VERY Good"]
    assert [row.length for row in old.encode(texts)] > [row.length for row in of_bytes.encode(texts)]
    keys = {"data_files": {"dev.txt": "more"}, "target_map_file": desk / "data_bytes/target_map.txt"}
    with pytest.raises(ConfigError, match="space_before_words: is True, but words of the earlier splits"):
        prepare(desk, "bytes", **keys)
    prepare(desk, "bytes", **keys, space_before_words=False)


def test_labels_by_themselves_and_numbers_come_as_they_are(desk: Path) -> None:
    run = trained(desk, "several", "bce_run", loss="bce", major_metric="f1")
    folder, texts = Path(run.save_dir) / "transformers", ["good film", "un plot"]
    for one, other in zip(
        run.predict(texts), pipeline("text-classification", str(folder), top_k=None)(texts), strict=True
    ):
        assert one.probabilities == pytest.approx({each["label"]: each["score"] for each in other}, abs=1e-6)
    run = trained(desk, "number", "number_run", model="bert_regression", loss="mse", major_metric="pearson")
    found = pipeline("text-classification", str(Path(run.save_dir) / "transformers"))(texts)
    assert [one.score for one in run.predict(texts)] == pytest.approx([each["score"] for each in found], abs=1e-6)
    scaled = trained(
        desk, "number", "units_run", model="bert_regression", loss="mse", standardize=True, major_metric="pearson"
    )
    assert not (Path(scaled.save_dir) / "transformers").exists()  # its weights are not in the units of the labels
    out = desk / "units_out"
    assert script(["export_hf", f"save_dir={scaled.save_dir}", f"out_dir={out}"]) == 0
    found = pipeline("text-classification", str(out))(texts)
    assert [one.score for one in scaled.predict(texts)] == pytest.approx([each["score"] for each in found], abs=1e-5)
    lone = trained(desk, "single", "none_run", loss="bce")  # class 0 gets what the others leave over
    assert not (Path(lone.save_dir) / "transformers").exists()


def test_weights_of_other_names_are_renamed_by_export_hf(desk: Path) -> None:
    for model, more in (("roberta_classification", {}), ("albert_classification", {"embedding_size": 8})):
        run = trained(desk, "single", f"{model}_run", model=model, **more)
        assert not (Path(run.save_dir) / "transformers").exists()
        out = desk / f"{model}_out"
        assert script(["export_hf", f"save_dir={run.save_dir}", f"out_dir={out}"]) == 0
        assert (out / "model.safetensors").is_file()
        texts = ["good film", "bad plot very", text(random.Random(3), 50)]
        assert probabilities(run, out, texts, texts) < 1e-6


def test_a_pair_has_no_segments_for_a_model_without_them_and_its_separators(desk: Path) -> None:
    prepare(desk, "pair", separators=2, data_dir=desk / "data_pair_of_roberta")
    keys = {"model": "roberta_classification", "type_vocab_size": 1, "max_update": 2}
    keys |= {"__parent__": str(desk / "data_pair_of_roberta" / "meta"), "data_dir": desk / "data_pair_of_roberta"}
    run, out = trained(desk, "pair", "pair_of_roberta", **keys), desk / "hf_pair_of_roberta"
    assert script(["export_hf", f"save_dir={run.save_dir}", f"out_dir={out}"]) == 0
    given = [{"text": "good film", "text_pair": "bad plot"}]
    assert probabilities(run, out, [("good film", "bad plot")], given) < 1e-6


def test_of_a_head_that_transformers_lacks_the_encoder_is_written(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(desk, "single", "attn_run", model="bert_classification_self_attn")
    assert (
        "writes the encoder alone for transformers: the head of BertClassificationSelfAttention"
        in capsys.readouterr().err
    )
    assert script(["export_hf", f"save_dir={run.save_dir}", f"out_dir={desk / 'attn_out'}"]) == 0
    ours, theirs = torch.load(run.checkpoint or ""), AutoModel.from_pretrained(desk / "attn_out").state_dict()
    assert all(torch.equal(value, ours[f"bert.{name}"]) for name, value in theirs.items() if "pooler" not in name)
    (desk / "attn_out/notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"an earlier export, but it also contains notes\.txt"):
        script(["export_hf", f"save_dir={run.save_dir}", f"out_dir={desk / 'attn_out'}"])


def test_a_model_that_is_no_encoder_has_no_form() -> None:
    with pytest.raises(Inexpressible, match="Linear is not an encoder"):
        form_of(torch.nn.Linear(1, 1), None, None)


def test_classes_of_a_user_that_a_pipeline_skips_are_named() -> None:
    class Cleaning(SingleLoader):
        """Of a user."""

    runs = [SimpleNamespace(picked=lambda kind, loader=loader: loader) for loader in (SingleLoader, Cleaning)]
    assert own_reading(runs[0], None) == own_reading(None, None) == ""
    assert "read by your own Cleaning, which transformers lacks" in own_reading(runs[1], None)
