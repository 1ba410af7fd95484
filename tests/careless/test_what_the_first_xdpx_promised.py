"""Configs and modules as the guide of the first XDPX writes them do what it promised, or say what to write instead."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from xdpx import run as door
from xdpx.config.parameters import Parameters, param
from xdpx.datasets.store import Store
from xdpx.losses import register as register_loss
from xdpx.losses.cross_entropy import CrossEntropy
from xdpx.tasks import FreeLBTask
from xdpx.tasks import register as register_task

WORDS = [f"w{number}" for number in range(20)]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
SIZES: dict[str, Any] = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "max_position_embeddings": 32,
}  # fmt: skip
TRAIN: dict[str, Any] = {"batch_size": 4, "max_update": 2, "eval_interval": 2, "learning_rate": 0.01, "log_interval": 1}


class Desk:
    """A working directory with raw pairs of texts, and the commands on configs in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        dice = random.Random(5)
        for split, size in (("train", 12), ("dev", 8), ("test", 9)):
            rows = [f"{self._text(dice)}\t{self._text(dice)}\t{number % 2}\n" for number in range(size)]
            self.write(f"raw/{split}.txt", "".join(rows))
        self.write("vocab.txt", "".join(f"{word}\n" for word in VOCABULARY))

    def _text(self, dice: random.Random) -> str:
        return " ".join(dice.choices(WORDS, k=dice.randint(2, 6)))

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)

    def run(self, *command: str, **keys: Any) -> int:
        self.write("config.hjson", json.dumps(keys))
        return door.main([*command, "config.hjson"])

    def prepare(self, data_dir: str = "data", **keys: Any) -> int:
        known = {"data_source": "raw", "loader": "pair", "processor": "bert_pair", "tokenizer": "bert", "max_len": 20}
        return self.run("x-prepro", **{"vocab_file": "vocab.txt", "data_dir": data_dir, **known, **keys})

    def train(self, data_dir: str = "data", save_dir: str = "run", parents: tuple[Any, ...] = (), **keys: Any) -> int:
        known = {"model": "bert_classification", "pretrained_model": None, "loss": "cross_entropy", **SIZES, **TRAIN}
        known |= {"major_metric": "loss", "ascending_metric": False, "data_dir": data_dir, "save_dir": save_dir, **keys}
        kept = {key: value for key, value in known.items() if value is not ...}
        return self.run("x-train", __parent__=[f"{data_dir}/meta", *parents], **kept)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.chdir(tmp_path)
    return Desk(tmp_path)


Said = Callable[[], str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Return all that was printed since it was last asked."""

    def both() -> str:
        out, err = capsys.readouterr()
        return out + err

    return both


# ---- data


@pytest.mark.parametrize(("break_mode", "longest"), [("complete", 11 + 2 + 2), ("eos", 11 + 3)])
def test_a_sentence_that_would_be_cut_is_found_by_check_max_len(
    desk: Desk, said: Said, break_mode: str, longest: int
) -> None:
    desk.write("raw/train.txt", f"{' '.join(WORDS[:11])}\nw1 w2\n")
    keys = {"loader": "corpus", "parser": "none", "processor": "bert_lm", "data_files": "train.txt"}
    keys |= {"break_mode": break_mode, "check_max_len": True}
    assert desk.prepare(**keys, max_len=13) == 2
    assert "check_max_len found a sample of 14 tokens" in said()
    assert desk.prepare(**keys, max_len=24) == 0
    assert f'"max_len": {longest}' in (desk.folder / "data/meta.hjson").read_text()


def test_the_messages_of_a_session_are_measured_not_the_whole_of_it(desk: Desk) -> None:
    desk.write("raw/train.txt", "".join(f"{number}\t{'ab'[number % 2]}\tw1 w2 w3\n" for number in range(9)))
    keys = {"loader": "session_corpus", "processor": "session_corpus", "data_files": "train.txt"}
    assert desk.prepare(**keys, max_len=5, check_max_len=True) == 0
    assert desk.prepare("other", **keys, max_len=4, check_max_len=True) == 2


def test_the_samples_of_the_guide_that_say_vocab_are_told_of_vocab_file(desk: Desk, said: Said) -> None:
    desk.write("config.hjson", json.dumps({"vocab": "vocab.txt", "target_map": "labels.txt", "data_source": "raw"}))
    assert door.main(["x-prepro", "config.hjson"]) == 2
    text = said()
    assert "Did you mean 'vocab_file'?" in text
    assert "Did you mean 'target_map_file'?" in text


# ---- scores


def test_compare_origin_compares_what_training_scored_and_names_what_it_did_not(desk: Desk, said: Said) -> None:
    assert desk.prepare() == 0
    assert desk.train() == 0
    said()
    scored = ["dev", "raw/dev.txt", "data/dev.pt", "test", "raw/test.txt"]
    assert desk.run("x-eval", save_dir="run", valid_subset=scored, compare_origin=True) == 0
    text = said()
    assert "every metric equals the one that training logged" in text
    assert [name for name in scored if f"not {name}, so it is not compared" in text] == ["test", "raw/test.txt"]
    log = desk.folder / "run/valid.log.tsv"
    rows = [line.split("\t") for line in log.read_text().splitlines()]
    rows[1][rows[0].index("valid_loss")] = "9.5"
    log.write_text("".join("\t".join(row) + "\n" for row in rows))
    assert desk.run("x-eval", save_dir="run", valid_subset=scored, compare_origin=True) == 1
    text = said()
    assert text.count("9.5 in training") == 3
    assert "raw/test.txt loss" not in text


def test_scores_that_are_not_those_of_training_are_told_without_being_asked(desk: Desk, said: Said) -> None:
    assert desk.prepare() == 0
    assert desk.train() == 0
    said()
    assert desk.run("x-eval", save_dir="run") == 0
    assert "training logged other scores" not in said()
    log = desk.folder / "run/valid.log.tsv"
    rows = [line.split("\t") for line in log.read_text().splitlines()]
    rows[1][rows[0].index("valid_loss")] = "9.5"
    log.write_text("".join("\t".join(row) + "\n" for row in rows))
    assert desk.run("x-eval", save_dir="run", valid_subset=["dev", "test"]) == 0
    assert said().count("9.5 in training") == 1
    assert desk.run("x-eval", save_dir="run", extra_config={"batch_size": 2}) == 0
    assert "9.5 in training" not in said()


# ---- weights and their configs

PRUNE = {"train_subset": "train", "train_steps": 1, "prune_config": {"0": 1}}


def test_a_pruned_model_leaves_a_config_that_is_a_parent_of_x_train(desk: Desk) -> None:
    assert desk.prepare() == 0
    assert desk.train() == 0
    desk.write("prune.hjson", json.dumps({**PRUNE, "save_dir": "run", "save_path": "small"}))
    assert door.main(["x-script", "prune_heads", "prune.hjson"]) == 0
    (desk.folder / "small/config.json").rename(desk.folder / "small/bert_config.json")
    own = dict.fromkeys(SIZES, ...)  # the parent says them all
    parents = ("./small/bert_config.json",)
    assert desk.train(save_dir="again", parents=parents, pretrained_model="small", **own) == 0
    assert desk.train(save_dir="fresh", parents=parents, **own) == 0
    for name in ("again", "fresh"):
        kept = json.loads((desk.folder / name / "config.json").read_text())
        assert (kept["pruned_heads"].keys(), kept["hidden_size"]) == ({"0"}, 16)
        weights = torch.load(desk.folder / name / "checkpoint-2.pt")
        assert weights["bert.encoder.layer.0.attention.self.query.weight"].shape == (8, 16)


def test_the_bert_config_of_a_published_checkpoint_is_a_parent(desk: Desk) -> None:
    published = {"directionality": "bidi", "pooler_type": "first_token_transform", "pooler_num_fc_layers": 3}
    desk.write("bert_config.json", json.dumps({**SIZES, **published, "layer_norm_eps": 0.1, "vocab_size": 21128}))
    assert desk.prepare() == 0
    assert desk.train(parents=("bert_config.json",), **dict.fromkeys(SIZES, ...)) == 0
    kept = json.loads((desk.folder / "run/config.json").read_text())
    assert (kept["layer_norm_eps"], kept["hidden_size"], kept["vocab_size"]) == (0.1, 16, len(VOCABULARY))


STUDENT = {f"student_{key}": value for key, value in SIZES.items()}
TEACHERS: dict[str, Any] = {
    "model": transformers.BertModel, "masked": transformers.BertForMaskedLM,
    "classes": transformers.BertForSequenceClassification, "both": transformers.BertForPreTraining,
}  # fmt: skip


@pytest.mark.parametrize("kind", TEACHERS)
def test_any_folder_in_hugging_face_format_teaches(desk: Desk, kind: str) -> None:
    torch.manual_seed(1)
    TEACHERS[kind](transformers.BertConfig(vocab_size=len(VOCABULARY), **SIZES)).save_pretrained(desk.folder / kind)
    desk.write("single/train.txt", "".join(f"w{number} w{number + 1}\n" for number in range(9)))
    desk.write("single/dev.txt", "".join(f"w{number} w{number + 2}\n" for number in range(8)))
    assert desk.prepare(data_source="single", loader="single", processor="bert_single") == 0
    away = dict.fromkeys((*SIZES, "model", "pretrained_model"), ...)
    told = {"task": "distill", "teacher_model": "minilm", "teacher_pretrained_model": kind, **STUDENT, **away}
    assert (
        desk.train(save_dir="minilm", loss="minilm", student_model="minilm", student_pretrained_model=None, **told) == 0
    )
    told |= {"student_model": "tinybert_encoder_only_distill", "student_pretrained_model": None}
    assert desk.train(save_dir="tinybert", loss="tinybert", **told) == 0


def test_a_teacher_without_what_is_to_be_imitated_is_refused_with_what_to_do(desk: Desk, said: Said) -> None:
    config = transformers.BertConfig(vocab_size=len(VOCABULARY), **SIZES)
    transformers.BertForMaskedLM(config).save_pretrained(desk.folder / "masked")
    assert desk.prepare() == 0
    away = dict.fromkeys((*SIZES, "model", "pretrained_model"), ...)
    told = {"task": "distill", "loss": "tinybert_td", "student_model": "tinybert_for_td", **STUDENT, **away}
    told |= {"teacher_model": "bert_classification", "teacher_pretrained_model": "masked"}
    assert desk.train(student_pretrained_model=None, **told) == 2
    assert "lacks what the student should imitate: bert.pooler.dense.weight" in said()
    assert desk.train(save_dir="layers", student_pretrained_model=None, cls_predict_distill=False, **told) == 0


# ---- two texts, each read alone


@pytest.mark.parametrize("model", [{"model": "sbert_nli", "prediction": "cosine"}, {"model": "simcse"}])
def test_a_siamese_bert_learns_by_circle_loss_and_predicts(desk: Desk, model: dict[str, Any]) -> None:
    assert desk.prepare(processor="bert_pair_siamese") == 0
    assert desk.train(loss="circle_siamese", **model) == 0
    assert desk.run("x-eval", save_dir="run", valid_subset="dev", compare_origin=True) == 0
    assert desk.run("x-pred", save_dir="run", predict_file_map={"raw/test.txt": "out.tsv"}) == 0
    assert len((desk.folder / "out.tsv").read_text().splitlines()) == 10


@pytest.mark.parametrize(
    ("model", "remedy"),
    [("sbert_nli", "Set prediction: cosine (dssm, sbert_nli)"), ("bert_classification", "(sbert_nli, simcse)")],
)
def test_a_model_that_circle_siamese_cannot_read_is_refused_with_what_to_do(
    desk: Desk, said: Said, model: str, remedy: str
) -> None:
    assert desk.prepare(processor="bert_pair_siamese") == 0
    assert desk.train(loss="circle_siamese", model=model) == 2
    assert remedy in said()


# ---- a user's own classes

CUT: list[str] = []


@register_task("promised_noise")
class NoiseElsewhere(FreeLBTask):
    """Cuts the model where it likes."""

    class Parameters(FreeLBTask.Parameters):
        """Keys of `freelb`."""

    def bottom_predict(self, batch: Any) -> Any:
        CUT.append("bottom")
        return super().bottom_predict(batch)

    def upper_predict(self, batch: Any, features: Any) -> Any:
        CUT.append("upper")
        return super().upper_predict(batch, features)


@register_loss("promised_loss")
class Scaled(CrossEntropy):
    """A loss with whole numbers that were written as floats."""

    class Parameters(CrossEntropy.Parameters):
        """Its keys."""

        scale: int = param(128.0, gt=0, doc="A whole number.")
        maybe: int | None = param(4.0, doc="Another.")
        several: list[int] = param([1.0, 2.0], doc="Some.")


def test_the_task_that_the_guide_names_can_be_inherited(desk: Desk) -> None:
    from xdpx.tasks.adv import FreeLBTask as Same

    assert Same is FreeLBTask
    assert desk.prepare() == 0
    assert desk.train(task="promised_noise", adv_steps=3) == 0
    assert CUT.count("upper") == 3 * CUT.count("bottom") == 6


def test_an_int_whose_default_is_written_as_a_float_is_that_int(desk: Desk) -> None:
    assert desk.prepare() == 0
    assert desk.train(loss="promised_loss") == 0
    made = Scaled.Parameters()
    assert [repr(each) for each in (made.scale, made.maybe, made.several)] == ["128", "4", "[1, 2]"]
    assert "128.0" not in (desk.folder / "run/args.py").read_text()


def test_a_default_of_another_type_is_blamed_on_the_class_that_has_it() -> None:
    with pytest.raises(TypeError, match=r"Mistaken\.rate: its default is 0\.5\. Use an integer"):

        class Mistaken(Parameters):
            rate: int = param(0.5, doc="A whole number.")


# ---- names that were missing


def test_ids_and_text_of_another_program_are_the_same_data(desk: Desk) -> None:
    desk.write("ids/train.txt", "".join(f"{number + 5} 6 {number + 7}\t{number % 2}\n" for number in range(8)))
    desk.write("text/train.txt", "".join(f"w{number} w1 w{number + 2}\t{number % 2}\n" for number in range(8)))
    keys = {"loader": "single", "processor": "bert_single"}
    assert desk.prepare("a", data_source="ids", tokenizer="bert_id", **keys) == 0
    assert desk.prepare("b", data_source="text", tokenizer="bert", **keys) == 0
    one, other = (Store.open(str(desk.folder / name / "train.pt")).take(np.arange(8)) for name in "ab")
    assert [one.sample(row) for row in range(8)] == [other.sample(row) for row in range(8)]


def test_two_optimizers_go_on_bit_for_bit_and_the_second_rate_stays(desk: Desk) -> None:
    assert desk.prepare() == 0
    keys = {"optimizer": "pair", "second_groups": ["top"], "second_learning_rate": 0.05, "second_optimizer": "lamb"}
    keys |= {"max_update": 4, "eval_interval": 2, "save_full_checkpoint": True, "lr_scheduler": "one_cycle"}
    assert desk.train(save_dir="whole", **keys) == 0
    assert desk.train(save_dir="parts", **keys, train_steps=2) == 0
    assert desk.train(save_dir="parts", **keys, resume=True) == 0
    one, other = (torch.load(desk.folder / name / "checkpoint-4.pt") for name in ("whole", "parts"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_memories_begin_with_what_a_run_has_learned_or_a_teacher_knows(desk: Desk) -> None:
    assert desk.prepare() == 0
    assert desk.train() == 0
    sizes = {"k_dim": 8, "nkeys": 4, "nheads": 2, "knn": 3, "value_init_iter": 20, "value_finetune_iter": 20}
    keys = {"save_dir": "run", "mem_positions": [-1], "save_path": "start/memories.pt", **sizes}
    assert desk.run("x-script", "pkm_init", **keys, coarse_kmeans_n_init=1) == 0
    pair = {"optimizer": "pair", "second_optimizer": "sparse_adam", "second_learning_rate": 0.01, "mem_sparse": True}
    own = {"model": "bert_classification_pkm", **pair, "pretrained_model": "run/<last>"}
    assert desk.train(save_dir="pkm", parents=("start/memories",), **own) == 0
    begun = torch.load(desk.folder / "start/memories.pt")
    trained = torch.load(desk.folder / "pkm/checkpoint-2.pt")
    moved = trained["bert.encoder.layer.1.intermediate.keys"] - begun["memories.1.keys"]
    assert 0 < moved.abs().max() < 0.1
    away = dict.fromkeys((*SIZES, "model", "pretrained_model"), ...)
    told = {"task": "pkm_distill", "loss": "pkm_local_distill", "teacher_pretrained_model": "run/<last>", **away}
    told |= {"teacher_target_layers": [-1], "student_target_layers": [1], "student_hidden_size": 16}
    small = {"mem_k_dim": 8, "mem_keys": 4, "mem_heads": 2, "mem_knn": 3}
    assert desk.train(save_dir="taught", **told, **{f"student_{key}": value for key, value in small.items()}) == 0
    own = {"model": "bert_classification_pkm", "mem_positions": [1], **small}
    assert desk.train(save_dir="again", **own, pretrained_memories="taught/<best>") == 0


def test_memories_of_cells_are_those_of_lopkm(desk: Desk, said: Said) -> None:
    assert desk.prepare() == 0
    assert desk.train() == 0
    sizes = {"k_dim": 8, "nkeys": 3, "nheads": 1, "knn": 2, "ncells": 2, "value_init_iter": 5, "value_finetune_iter": 5}
    keys = {"save_dir": "run", "mem_positions": [0], "save_path": "start/cells.pt", **sizes}
    assert desk.run("x-script", "pkm_init", **keys, input_size=17) == 2
    assert "input_size: is 17, but the layers are 16 wide" in said()
    assert desk.run("x-script", "pkm_init", **keys) == 0
    assert desk.train(save_dir="cells", parents=("start/cells",), model="bert_classification_lopkm") == 0


def test_prototypes_are_found_while_training_and_come_back_bit_for_bit(desk: Desk, said: Said) -> None:
    assert desk.prepare(processor="bert_cl_pair") == 0
    keys = {"model": "simcse", "task": "bert_cl", "loss": "bert_cl", "num_cluster": [2], "min_points_per_centroid": 2}
    keys |= {"cluster_interval": 3, "lambda_proto_loss": 0.5, "max_update": 5, "eval_interval": 1}
    assert desk.train(save_dir="whole", **keys) == 0
    assert desk.train(save_dir="parts", **keys, save_full_checkpoint=True, train_steps=2) == 0
    assert desk.train(save_dir="parts", **keys, save_full_checkpoint=True, resume=True) == 0
    one, other = (torch.load(desk.folder / name / "checkpoint-5.pt") for name in ("whole", "parts"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert "proto_loss" in (desk.folder / "whole/train.log.tsv").read_text()
    assert desk.run("x-eval", save_dir="whole", valid_subset="dev", compare_origin=True) == 0
    said()
    assert desk.train(save_dir="other", **{**keys, "path_to_stsb": "stsb"}) == 2
    assert "set major_metric: spearman" in said()


def test_an_exported_network_is_scored_and_predicts_as_the_run_it_came_from(desk: Desk) -> None:
    assert desk.prepare() == 0
    assert desk.train() == 0
    assert desk.run("x-script", "export_torchscript", save_dir="run", out_dir="out") == 0
    away = dict.fromkeys((*SIZES, "pretrained_model"), ...)
    assert desk.train(save_dir="more", model="torchscript", model_path="out", **away) == 0
    (desk.folder / "config.hjson").rename(desk.folder / "script.hjson")
    files = {"raw/test.txt": "script.tsv"}
    assert desk.run("x-pred", config="script.hjson", predict_file_map=files) == 0
    assert desk.run("x-pred", save_dir="run", predict_file_map={"raw/test.txt": "run.tsv"}) == 0
    rows = [
        [line.split("\t") for line in (desk.folder / name).read_text().splitlines()]
        for name in ("script.tsv", "run.tsv")
    ]
    assert [row[3] for row in rows[0]] == [row[3] for row in rows[1]]
    np.testing.assert_allclose(*([float(row[5]) for row in each[1:]] for each in rows), atol=1e-5)


def test_a_profile_names_the_modules_of_a_run_and_opens_in_chrome(desk: Desk, said: Said) -> None:
    assert desk.prepare() == 0
    assert desk.train() == 0
    said()
    assert desk.run("x-script", "run_profiling", save_dir="run", trace_path="out/trace.json", profile_steps=2) == 0
    assert "ms per batch  bert.encoder.layer.0.attention" in said()
    events = json.loads((desk.folder / "out/trace.json").read_text())["traceEvents"]
    assert {"bert.embeddings", "bert.encoder.layer.0.attention.self"} <= {event.get("name") for event in events}
    assert desk.run("x-script", "run_profiling", save_dir="run", trace_path="out") == 2
