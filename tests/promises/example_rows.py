"""A few real rows of each kind that the examples read, a tiny encoder, and the rows that each example trains on.

A new example needs an entry in `PREPARED` (configs of x-prepro) or `TRAINED` (configs of x-train).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ENGLISH = (
    ("a warm , funny and wholly engaging film", "1"),
    ("the plot is thin and the jokes are stale", "0"),
    ("an honest portrait , beautifully played", "1"),
    ("I wanted my two hours back", "0"),
    ("one of the best stories of the year", "1"),
    ("loud , long and without a single idea", "0"),
    ("it made me laugh more than once", "1"),
    ("a tired copy of a better film", "0"),
    ("quiet , patient and finally moving", "1"),
    ("nobody in it behaves like a human being", "0"),
    ("the cast is a joy to watch", "1"),
    ("dull from the first scene to the last", "0"),
)
CHINESE = (
    ("房间很干净，服务员也热情", "1"),
    ("早餐太差，隔音也不好", "0"),
    ("离地铁站近，出行方便", "1"),
    ("前台态度恶劣，再也不来", "0"),
    ("性价比高，下次还住这里", "1"),
    ("空调坏了，整晚没睡好", "0"),
    ("床很舒服，孩子也喜欢", "1"),
    ("照片和房间完全不一样", "0"),
    ("位置好，价格便宜", "1"),
    ("洗手间有味道，很失望", "0"),
)
MENTIONS = (
    ("Anna/B-PER Schmidt/I-PER works/O in/O Berlin/B-LOC ./O", "Siemens/B-ORG hired/O her/O ./O"),
    ("The/O Red/B-ORG Cross/I-ORG helped/O in/O Haiti/B-LOC ./O", "Paris/B-LOC was/O cold/O ./O"),
    ("Li/B-PER Wei/I-PER flew/O to/O New/B-LOC York/I-LOC ./O", "He/O met/O Bob/B-PER ./O"),
    ("Nobody/O came/O ./O", "Toyota/B-ORG opened/O a/O plant/O in/O Texas/B-LOC ./O"),
)
CHINESE_MENTIONS = (("我/O 在/O 北/B-LOC 京/I-LOC 工/O 作/O", "张/B-PER 三/I-PER 去/O 了/O 上/B-LOC 海/I-LOC"),)
TOPICS = ("sport", "art", "news")
TALK = ("hello there", "how can I help ?", "my order is late", "which one ?", "the blue shirt", "let me look", "thanks",
        "it ships today", "good , bye", "have a nice day")  # fmt: skip
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"[unused{number}]" for number in range(1, 40)))
ENCODER = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "max_position_embeddings": 512,
}  # fmt: skip
"""Sizes of the encoder that replaces the user's."""

TINY: Mapping[str, Any] = {**ENCODER, "embedding_dim": 8}
"""Set for every model that declares the key. Only sizes are reduced; everything else is as in the example."""

LABELLED = [f"{text}\t{label}" for text, label in ENGLISH * 2]
LINES = [line for index, (text, _) in enumerate(ENGLISH * 4) for line in ([text] if index % 4 else ["", text])][1:]
PAIRS = [f"{ENGLISH[i][0]}\t{ENGLISH[(i + 2 * (i % 2)) % 12][0]}\t{(i + 1) % 2}" for i in range(12)] * 2
CHINESE_PAIRS = [f"{CHINESE[i % 10][0]}\t{CHINESE[(i + i % 3) % 10][0]}\t{int(not i % 3)}" for i in range(24)]
RANKED = [f"q{i // 3}\t{ENGLISH[i // 3 % 12][0]}\t{ENGLISH[i % 12][0]}\t{i % 3}" for i in range(36)]
GRADED = [f"{ENGLISH[i % 12][0]}\t{ENGLISH[(i + 1) % 12][0]}\t{(i % 6) / 2}" for i in range(24)]
SEVERAL = ["text\tlabels", *(f"{ENGLISH[i % 12][0]}\t{','.join(TOPICS[: i % 4])}" for i in range(24))]
SESSIONS = [f"{i % 10 + 1}\t{'ab'[i % 2]}\t{TALK[(i + i // 10) % 10]}" for i in range(160)]


def conll(texts: Iterable[Iterable[str]]) -> list[str]:
    """Return tagged sentences with one word and its tag per line."""
    lines = [[*(pair.replace("/", "\t") for pair in sentence.split()), ""] for text in texts for sentence in text]
    return [line for sentence in lines for line in sentence]


def squad() -> list[str]:
    """Return questions about a paragraph in SQuAD's JSON format."""
    rows = [(f"what is it about {text.split()[-1]} ?", text, text.split()[1]) for text, _ in ENGLISH]
    paragraphs = [
        {"context": text, "qas": [{"id": str(number), "question": question, "answers": [
            {"text": answer, "answer_start": text.index(answer)}]}]}
        for number, (question, text, answer) in enumerate(rows)
    ]  # fmt: skip
    return [json.dumps({"version": "1.1", "data": [{"title": "films", "paragraphs": paragraphs}]})]


FILES: Mapping[str, tuple[str, list[str]]] = {
    "data/sst2": ("tsv", LABELLED),
    "data/chnsenticorp": ("tsv", [f"{text}\t{label}" for text, label in CHINESE * 3]),
    "data/online_shopping": ("tsv", [f"{text}\t{label}" for text, label in CHINESE * 3]),
    "data/lcqmc": ("tsv", CHINESE_PAIRS),
    "data/bq": ("tsv", CHINESE_PAIRS),
    "data/msrp": ("tsv", PAIRS),
    "data/msra_ner": ("txt", conll(CHINESE_MENTIONS * 12)),
    "demo/raw": ("tsv", LABELLED),
    "raw/pairs": ("tsv", PAIRS),
    "raw/questions": ("tsv", [line.rpartition("\t")[0] for line in PAIRS]),
    "raw/ranked": ("tsv", RANKED),
    "raw/graded": ("tsv", GRADED),
    "raw/priced": ("tsv", [line.partition("\t")[2] for line in GRADED]),
    "raw/several": ("tsv", SEVERAL),
    "raw/sessions": ("tsv", SESSIONS),
    "raw/tagged": ("txt", conll(MENTIONS * 4)),
    "raw/lines": ("txt", LINES),
    "raw/squad": ("json", squad()),
}
"""Folder -> extension, and lines of its files train, dev and test."""


def write(folder: Path) -> None:
    """Write all rows below a folder, and the encoder to models/minilm."""
    for name, (extension, lines) in FILES.items():
        (folder / name).mkdir(parents=True)
        for split in ("train", "dev", "test"):
            (folder / f"{name}/{split}.{extension}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    (folder / "demo/raw/unlabelled.tsv").write_text("".join(f"{text}\n" for text, _ in ENGLISH), "utf-8")
    (folder / "words.txt").write_text("bad\ngood\n")
    with sqlite3.connect(folder / "reviews.db") as reviews:
        for split in ("train", "dev"):
            reviews.execute(f"create table {split} (id integer, text text, label text)")
            numbered = [(number, *row) for number, row in enumerate(ENGLISH * 2)]
            reviews.executemany(f"insert into {split} values (?, ?, ?)", numbered)
    reviews.close()
    write_encoder(folder / "models/minilm")


def write_encoder(folder: Path) -> None:
    """Write a tiny random encoder in Hugging Face format, whose vocabulary has the words and characters above."""
    from transformers import BertConfig, BertModel

    texts = " ".join([text for text, _ in (*ENGLISH, *CHINESE)] + ["what is it about ?", *TALK, *LINES]).lower()
    mentions = " ".join(sentence for text in (*MENTIONS, *CHINESE_MENTIONS) for sentence in text)
    mentions = " ".join(pair.split("/")[0] for pair in mentions.lower().split())
    pieces = {word for word in f"{texts} {mentions} good bad".split() if word.isascii()}
    pieces |= {character for character in texts + mentions if not character.isascii()}
    tokens = [*SPECIAL, *sorted(pieces)]
    BertModel(BertConfig(vocab_size=len(tokens), **ENCODER)).save_pretrained(folder)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))


class Prepared(NamedTuple):
    """Data prepared by a config of x-prepro.

    Attributes:
        example: the config.
        source: folder of its rows; '' if the config specifies it.
        keys: set by the user.
    """

    example: str
    source: str = ""
    keys: Mapping[str, Any] = {}


PIECES: dict[str, Any] = {"tokenizer": "bert", "vocab_file": "models/minilm/vocab.txt", "max_len": 24}
WORDS: dict[str, Any] = {"tokenizer": "space", "max_len": 16}
RUNNING = {"vocab_file": "models/minilm/vocab.txt", "max_len": 32}


def texts(**keys: Any) -> Prepared:
    return Prepared("families/classification_prepro", "data/sst2", keys)


def pairs(**keys: Any) -> Prepared:
    return Prepared("families/matching_prepro", "raw/pairs", keys)


def running(**keys: Any) -> Prepared:
    return Prepared("families/pretrain_prepro", "raw/lines", {**RUNNING, **keys})


PREPARED: dict[str, Prepared] = {
    **{name: Prepared(name) for name in (
        "sst2/prepro_words", "sst2/prepro_bert", "chnsenticorp/prepro_chars", "chnsenticorp/prepro_bert", "bq/prepro",
        "lcqmc/prepro", "demo/prepro", "results/msra_ner_prepro", "results/msrp_bert_prepro",
        "results/msrp_words_prepro", "results/online_shopping_prepro", "results/sst2_logits_prepro",
    )},
    "words": texts(processor="single", **WORDS),
    "pieces": texts(processor="bert_single", **PIECES),
    "prompted": texts(processor="bert_prompt_single", label_length=1, labels_ext="words.txt", **PIECES),
    "views": texts(processor="bert_cl_single", **PIECES),
    "several": Prepared("families/several_labels_prepro", "raw/several", {"processor": "bert_single", **PIECES}),
    "graded": Prepared("families/matching_prepro", "raw/graded", {
        "processor": "bert_pair", "target_type": "number", **PIECES}),
    "graded words": Prepared("families/matching_prepro", "raw/graded", {
        "processor": "pair", "target_type": "number", **WORDS}),
    "priced words": Prepared("families/classification_prepro", "raw/priced", {
        "processor": "single", "target_type": "number", **WORDS}),
    "mixed": Prepared("families/classification_mix_prepro", "data/sst2", {**PIECES, "min_word_count": 1}),
    "logits": Prepared("families/distill_prepro", "data/sst2_logits", {
        "__def__": {"teacher_data_dir": "out/data/sst2_bert"}, **WORDS}),
    "tables": Prepared("families/table_prepro", "sqlite:///reviews.db", {"processor": "single", **WORDS}),
    "saved": Prepared("families/datasets_prepro", "raw/saved", {"processor": "single", **WORDS}),
    "word pairs": pairs(processor="pair", **WORDS),
    "piece pairs": pairs(processor="bert_pair", **PIECES),
    "siamese": pairs(processor="sbert_nli", **PIECES),
    "ranked": Prepared("families/rank_prepro", "raw/ranked", {"processor": "bert_pair", **PIECES}),
    "ranked words": Prepared("families/rank_prepro", "raw/ranked", {"processor": "pair", **WORDS}),
    "supervised": Prepared("families/supervised_prepro", "raw/pairs", RUNNING),
    "passages": Prepared("families/dpr_prepro", "raw/questions", {"vocab_file": "models/minilm/vocab.txt"}),
    "squad": Prepared("families/qa_prepro", "raw/squad", {"vocab_file": "models/minilm/vocab.txt"}),
    "sessions": Prepared("families/session_prepro", "raw/sessions", {"vocab_file": "models/minilm/vocab.txt"}),
    "tagged": Prepared("families/tagging_prepro", "raw/tagged", {"vocab_file": "models/minilm/vocab.txt"}),
    "tagged words": Prepared("families/tagging_words_prepro", "raw/tagged"),
    "structbert": running(),
    "bert_lm": running(processor="bert_lm"),
    "bert_sop": running(processor="bert_sop"),
    "electra": running(processor="electra"),
    "spans": running(processor="span_corruption"),
    "plain lines": running(processor="bert_single"),
    "soft prompt": Prepared("families/prompt_pretrain_prepro", "raw/lines", {**RUNNING, "max_len": 48}),
}  # fmt: skip


class Trained(NamedTuple):
    """A training by a config of x-train.

    Attributes:
        data: key of `PREPARED`.
        keys: set by the user, besides the folders.
        teacher: example that must be trained before.
    """

    data: str
    keys: Mapping[str, Any] = {}
    teacher: str = ""


GIVEN = {"pretrained_model": "models/minilm"}
LIGHT, MATCHING = (
    ("bow", "cls_cnn", "dpcnn", "gru", "lstm"),
    ("dssm", "esim", "match_cnn", "match_gru", "match_lstm", "re2"),
)
TRICKS = ("bert_classification", "bert_freelb", "bert_gentle", "bert_r_drop", "bert_unbalanced")
EPISODES = {
    "n_way": 2,
    "k_shot": 2,
    "q_query": 2,
    "batch_size": 8,
    "proj_hidden_size": 8,
    "dev_episodes": 3,
    "train_episodes": 4,
}
LISTS = {"list_size": 3, "batch_size": 6}
TEACHER = {"teacher_pretrained_model": "models/minilm"}
FINE_TUNED = {"teacher_pretrained_model": "out/results/sst2_bert.seed1/<best>"}
MEMORIES = {
    "teacher_target_layers": [0],
    "student_target_layers": [0],
    "student_hidden_size": ENCODER["hidden_size"],
    "student_mem_keys": 4,
}
WIDTH = {"student_fit_size": ENCODER["hidden_size"]}
ENCODERS = ("albert", "deberta", "electra", "modernbert", "roberta")


def family(name: str) -> str:
    return f"families/{name}"


TRAINED: dict[str, Trained] = {
    **{family(name): Trained("words") for name in LIGHT},
    **{family(name): Trained("word pairs") for name in MATCHING},
    **{family(name): Trained("pieces", GIVEN) for name in TRICKS},
    **{family(f"{name}_classification"): Trained("piece pairs", {"pretrained_model": None}) for name in ENCODERS},
    family("bert_classification_concat"): Trained("piece pairs", {**GIVEN, "highway_layers": [-1, -2]}),
    family("bert_classification_self_attn"): Trained("piece pairs", GIVEN),
    family("bert_rezero"): Trained("pieces"),
    family("bert_regression"): Trained("graded", GIVEN),
    family("cnn_regression"): Trained("priced words"),
    family("re2_regression"): Trained("graded words"),
    family("bert_several_labels"): Trained("several", GIVEN),
    family("bert_prompt"): Trained("prompted", GIVEN),
    family("bert_mix"): Trained("mixed", GIVEN),
    family("bert_token"): Trained("tagged", GIVEN),
    family("lstm_token"): Trained("tagged words"),
    family("gru_token"): Trained("tagged words"),
    family("bert_qa"): Trained("squad", GIVEN),
    family("bert_dpr_qa"): Trained("passages", GIVEN),
    family("sbert_nli"): Trained("siamese", GIVEN),
    family("listnet"): Trained("ranked", {**GIVEN, **LISTS}),
    family("ranknet"): Trained("ranked words", LISTS),
    family("protonet"): Trained("pieces", {**GIVEN, **EPISODES}),
    family("fewshot"): Trained("words", EPISODES),
    family("albert_lm"): Trained("bert_lm"),
    family("albert_pretrain"): Trained("bert_sop"),
    family("bert_lm"): Trained("bert_lm"),
    family("bert_pretrain"): Trained("structbert"),
    family("bert_pretrain_cl"): Trained("soft prompt"),
    family("electra_pretrain"): Trained("electra"),
    family("simcse"): Trained("views"),
    family("bert_cl"): Trained("views", {"num_cluster": [2], "min_points_per_centroid": 2}),
    family("mlman"): Trained("pieces", {**GIVEN, **EPISODES}),
    family("bert_pkm"): Trained("pieces", {**GIVEN, "mem_positions": [-1], "mem_keys": 4, "mem_k_dim": 8}),
    family("pkm_distill"): Trained("plain lines", {**TEACHER, **MEMORIES}),
    family("rmr_bert"): Trained("sessions", {"top_heads": 2, "top_hidden_size": 8}),
    family("t5"): Trained("spans"),
    family("static_distill"): Trained("logits"),
    family("distill"): Trained("sst2/prepro_bert", FINE_TUNED, "results/sst2_bert"),
    family("minilm"): Trained("plain lines", TEACHER),
    family("tinybert_gd"): Trained("plain lines", {**TEACHER, **WIDTH}),
    family("tinybert_td"): Trained("sst2/prepro_bert", {**FINE_TUNED, **WIDTH}, "results/sst2_bert"),
    "bq/re2": Trained("bq/prepro"),
    "lcqmc/re2": Trained("lcqmc/prepro"),
    "chnsenticorp/bert": Trained("chnsenticorp/prepro_bert"),
    "chnsenticorp/cnn": Trained("chnsenticorp/prepro_chars"),
    "sst2/bert": Trained("sst2/prepro_bert"),
    "sst2/bert_jax": Trained("sst2/prepro_bert"),
    "sst2/cnn": Trained("sst2/prepro_words"),
    "sst2/grid": Trained("sst2/prepro_bert"),
    "demo/train": Trained("demo/prepro"),
    "tune/train": Trained("sst2/prepro_words"),
    "cluster/train": Trained("sst2/prepro_words", {"nproc": None}),  # one process here; several are tested elsewhere
    "results/bq_re2": Trained("bq/prepro"),
    "results/lcqmc_re2": Trained("lcqmc/prepro"),
    "results/chnsenticorp_cnn": Trained("chnsenticorp/prepro_chars"),
    "results/chnsenticorp_cnn_freelb": Trained("chnsenticorp/prepro_chars"),
    "results/chnsenticorp_cnn_r_drop": Trained("chnsenticorp/prepro_chars"),
    "results/msra_ner_lstm": Trained("results/msra_ner_prepro"),
    "results/msrp_bert": Trained("results/msrp_bert_prepro"),
    "results/msrp_re2": Trained("results/msrp_words_prepro"),
    "results/online_shopping_cnn": Trained("results/online_shopping_prepro"),
    "results/sst2_bert": Trained("sst2/prepro_bert"),
    "results/sst2_bert_freelb": Trained("sst2/prepro_bert"),
    "results/sst2_bert_r_drop": Trained("sst2/prepro_bert"),
    "results/sst2_cnn": Trained("sst2/prepro_words"),
    "results/sst2_cnn_distill": Trained("results/sst2_logits_prepro"),
}
USED_WITH_A_RUN = {
    "demo/eval": "demo/train",
    "demo/predict": "demo/train",
    "results/sst2_logits_pred": "results/sst2_bert",
}
"""Configs of x-eval and x-pred -> the examples that must be trained before."""

SEARCHED = {"tune/tune": ("tune/train", "tune/space")}
"""Configs of x-tune -> (the x-train config they start from, the config of their space)."""

PREDICTS_NOTHING = frozenset({"families/bert_cl", "families/bert_dpr_qa", "families/simcse"})
"""Examples with losses that cannot score a single row."""
