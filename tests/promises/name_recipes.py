"""Training recipes that together use every registered name: the data, the family config, and reductions in size.

A new name needs an entry in `RECIPES` (and in `DATA` if it needs other raw files).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FAMILIES = Path(__file__).parents[2] / "examples/families"
WORDS = [f"w{number}" for number in range(24)]
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused1]", "[unused2]", "[unused3]")
LABELS = ("good", "bad", "dull")
SIZES = {"train": 24, "dev": 10}

TINY: dict[str, Any] = {
    "embedding_dim": 8, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "max_position_embeddings": 64, "pretrained_model": None, "initializer_range": 0.2,
}  # fmt: skip
"""Set for every model that declares the key. A large initial range keeps scores from being nearly equal."""

COMMON: dict[str, Any] = {
    "batch_size": 4, "max_update": 3, "max_epoch": None, "eval_interval": -1, "log_interval": 1, "learning_rate": 0.01,
    "lr_scheduler": "constant", "save_best_only": False,
}  # fmt: skip
DROPPED = ["warmup_steps"]


@dataclass(frozen=True)
class Recipe:
    """A training to try.

    Attributes:
        data: key of `DATA`.
        model: by default the one that the recipe is named after.
        family: file in examples/families; by default the one with the model's name, "" for none.
        keys: of the training config, overriding those of the family.
        prefix: of the model's keys.
        alone: whether a row is scored independently of the other rows of its batch.
    """

    data: str
    model: str | None = None
    family: str | None = None
    keys: Mapping[str, Any] = field(default_factory=dict)
    alone: bool = True
    prefix: str = ""


def on_cnn(**keys: Any) -> Recipe:
    """Return the recipe of a task, loss or optimizer that works with any classifier."""
    return Recipe("single", model="cls_cnn", keys=keys)


PLAIN: dict[str, Any] = {"loss": "cross_entropy", "major_metric": "acc"}
"""Settings of a classifier without a family, whose keys belong to another optimizer."""

EPISODES: dict[str, Any] = {
    "loss": "fewshot", "sampler": "episode", "n_way": 3, "k_shot": 1, "q_query": 1, "batch_size": 6,
    "batch_by_len": False,
}  # fmt: skip
LISTS: dict[str, Any] = {"sampler": "rank", "list_size": 3, "batch_size": 6, "batch_by_len": False}
TEACHER: dict[str, Any] = {
    "teacher_hidden_size": 32, "teacher_intermediate_size": 32, "teacher_num_hidden_layers": 4,
    "teacher_num_attention_heads": 2, "teacher_max_position_embeddings": 64, "teacher_initializer_range": 0.2,
}  # fmt: skip
"""A teacher, wider and deeper than its student."""


MEMORY: dict[str, Any] = {"mem_k_dim": 8, "mem_heads": 2, "mem_knn": 3, "mem_keys": 4}
MEMORIES: dict[str, Any] = {**MEMORY, "mem_positions": [-1]}
"""So few memories that every key is close to some token."""


def taught(model: str, **keys: Any) -> Recipe:
    """Return the recipe of memories that imitate the feed-forward layers of a teacher."""
    sizes = {"student_hidden_size": 32, "student_initializer_range": 0.2, "student_target_layers": [1, 3]}
    sizes |= {f"student_{key}": value for key, value in {**MEMORY, **keys}.items()}
    return student("texts", "pkm_distill", model, teacher_target_layers=[1, -1], student_model=model, **sizes)


NARROW: dict[str, Any] = {"char_hidden_size": 8, "encoder_hidden_size": 8, "fusion_hidden_size": 8}
"""Widths of the layers of `bert_mix` above BERT."""


def student(data: str, family: str, model: str | None = None, **keys: Any) -> Recipe:
    """Return the recipe of a model that imitates a teacher."""
    return Recipe(data, model=model, family=family, prefix="student_", keys={**TEACHER, **keys})


RECIPES: dict[str, Recipe] = {
    "albert_classification": Recipe("bert_pair"),
    "albert_lm": Recipe("bert_lm"),
    "albert_pretrain": Recipe("bert_sop"),
    "deberta_classification": Recipe("bert_pair"),
    "electra_classification": Recipe("bert_pair"),
    "modernbert_classification": Recipe("bert_pair"),
    "roberta_classification": Recipe("bert_pair"),
    "bert_classification": Recipe("bert_single"),
    "bert_classification of pairs": Recipe("bert_pair", model="bert_classification"),
    "bert_freelb": Recipe("bert_single", model="bert_classification", family="bert_freelb"),
    "bert_gentle": Recipe("bert_single", model="bert_classification", family="bert_gentle"),
    "bert_prompt": Recipe("bert_prompt"),
    "bert_r_drop": Recipe("bert_single", model="bert_classification", family="bert_r_drop"),
    "bert_unbalanced": Recipe("bert_single", model="bert_classification", family="bert_unbalanced"),
    "bert_classification_concat": Recipe("bert_pair", keys={"highway_layers": [-1, -2]}),
    "bert_classification_self_attn": Recipe("bert_pair"),
    "sbert_nli": Recipe("siamese"),
    "sbert_nli of pairs": Recipe("siamese pair", model="sbert_nli"),
    "bert_dpr_qa": Recipe("dpr", alone=False),
    "bert_qa": Recipe("qa"),
    "bert_classification_rezero": Recipe("bert_pair", family="bert_rezero"),
    "bert_lm_rezero": Recipe("bert_lm", family="bert_lm"),
    "bert_pretrain_rezero": Recipe("structbert", family="bert_pretrain"),
    "bert_regression": Recipe("numbers"),
    "bert_token": Recipe("tagged"),
    "bert_token with a CRF": Recipe("tagged", model="bert_token", keys={"use_crf": True}),
    "lstm_token": Recipe("tagged words"),
    "gru_token": Recipe("tagged words", keys={"use_crf": True}),
    "bert_lm": Recipe("bert_lm"),
    "bert_lm of whole words": Recipe("whole words", model="bert_lm"),
    "bert_pretrain": Recipe("structbert"),
    "bert_pretrain with nsp": Recipe("bert_nsp", model="bert_pretrain"),
    "bert_pretrain with sop": Recipe("bert_sop", model="bert_pretrain"),
    "bert_pretrain with labels": Recipe("bert_supervised", model="bert_pretrain"),
    "bce": on_cnn(loss="bce"),
    "bce_distill": Recipe("single with logits", model="cls_cnn", keys={"loss": "bce_distill"}),
    "bert_pretrain_cl": Recipe("bert_lm", alone=False),
    "bow": Recipe("single", keys={"word_ngrams": 2, "ngram_buckets": 50}),
    "causal_lm": Recipe("causal_lm", family="", keys={"loss": "causal_lm", "major_metric": "acc"}),
    "cls_cnn": Recipe("single"),
    "cls_cnn_bce": Recipe("single", family="cls_cnn"),
    "cnn_regression": Recipe("number of one"),
    "circle_siamese": Recipe(
        "pair", model="dssm", keys={"loss": "circle_siamese", "prediction": "cosine"}, alone=False
    ),
    "distill": Recipe(
        "bert_single",
        model="cls_cnn",
        family="distill",
        prefix="student_",
        keys={
            f"teacher_{key}": value for key, value in TINY.items() if key not in {"embedding_dim", "pretrained_model"}
        },
    ),  # fmt: skip
    "dpcnn": Recipe("single"),
    "dssm": Recipe("pair"),
    "esim": Recipe("pair"),
    "circle": Recipe("pair", model="match_cnn", keys={"loss": "circle"}, alone=False),
    "fewshot": Recipe("single", model="cls_cnn", family="fewshot", keys={"proj_hidden_size": 8, **EPISODES}),
    "fewshot of pairs": Recipe(
        "pair", model="dssm", keys={"task": "fewshot", "proj_hidden_size": 8, **EPISODES, "n_way": 2, "k_shot": 2}
    ),
    "fgm": on_cnn(task="fgm"),
    "focal": on_cnn(loss="focal"),
    "freelb": on_cnn(task="freelb"),
    "ghmc": on_cnn(loss="ghmc"),
    "gru": Recipe("single"),
    "label_smooth_ce": on_cnn(loss="label_smooth_ce"),
    "lamb": on_cnn(optimizer="lamb"),
    "lstm": Recipe("single"),
    "pair": Recipe(
        "bert_single",
        model="bert_classification",
        family="",
        keys={
            **PLAIN,
            "optimizer": "pair",
            "major_weight_decay": 0.01,
            "second_groups": ["top"],
            "second_optimizer": "lamb",
            "second_learning_rate": 0.1,
        },
    ),
    "sparse_adam": Recipe("single", model="cls_cnn", family="", keys={**PLAIN, "optimizer": "sparse_adam"}),
    "match_cnn": Recipe("pair"),
    "match_gru": Recipe("pair"),
    "match_lstm": Recipe("pair"),
    "pgd": on_cnn(task="pgd"),
    "mlman": Recipe(
        "bert_single",
        family="mlman",
        keys={"proj_hidden_size": 8, "n_way": 3, "k_shot": 1, "q_query": 1, "batch_size": 6, "dev_episodes": 3},
    ),
    "protonet": Recipe(
        "bert_single",
        keys={"proj_hidden_size": 8, "n_way": 3, "k_shot": 1, "q_query": 1, "batch_size": 6, "dev_episodes": 3},
    ),
    "listnet": Recipe("bert_rank", model="bert_regression", family="listnet", keys=LISTS),
    "listnet of classes": Recipe("rank", model="match_cnn", keys={"loss": "listnet", "major_metric": "ndcg", **LISTS}),
    "ranknet": Recipe("rank", model="dssm", family="ranknet", keys=LISTS),
    "ranknet of texts read alone": Recipe(
        "siamese rank", model="sbert_nli", keys={"loss": "ranknet", "major_metric": "mrr", **LISTS}
    ),
    "re2": Recipe("pair"),
    "re2_regression": Recipe("number of two"),
    "electra_pretrain": Recipe("electra"),
    "t5": Recipe("span_corruption"),
    "rmr_bert": Recipe("session_corpus", keys={"top_hidden_size": 8, "top_heads": 2}),
    "rmr with what is read": Recipe(
        "session_corpus", model="rmr_bert", keys={"top_hidden_size": 8, "top_heads": 2, "task": "rmr"}
    ),
    "slm": Recipe("structbert", model="bert_pretrain", keys={"task": "slm"}),
    "slm of tokens alone": Recipe("bert_lm", model="bert_lm", keys={"task": "slm"}),
    "bert_pretrain_cl behind a prompt": Recipe("soft prompt", model="bert_pretrain_cl", alone=False),
    "bert_classification of several labels": Recipe(
        "several labels", model="bert_classification", family="bert_several_labels"
    ),
    "prompt_single": Recipe("prompt_single", model="bert_prompt"),
    "bert_cl": Recipe(
        "bert_cl_single",
        model="simcse",
        family="bert_cl",
        keys={"num_cluster": [2, 3], "min_points_per_centroid": 4, "cluster_interval": 2, "lambda_proto_loss": 0.5},
        alone=False,
    ),
    "bert_cl of classes": Recipe(
        "bert_cl_single",
        model="simcse",
        family="bert_cl",
        keys={"supervised": True, "negative_proto_size": 1},
        alone=False,
    ),
    "simcse": Recipe("bert_cl_single", alone=False),
    "simcse of pairs": Recipe("bert_cl_pair", model="simcse", alone=False),
    "simcse of triplets": Recipe("bert_cl_triplet", model="simcse", alone=False),
    "bert_mix": Recipe("bert_single_mix", keys={**NARROW, "dropout": 0.1}),
    "bert_mix of pairs": Recipe(
        "bert_pair_mix",
        model="bert_mix",
        keys={
            **NARROW,
            "task_type": "matching",
            "prediction": "full",
            "pooling": "attn",
            "word_emb_proj": 4,
            "pooler": True,
            "seq_pooler": True,
            "residual": True,
            "fusion_activation": True,
            "bert_seq_layer": 2,
        },
    ),  # fmt: skip
    "bert_mix without words": Recipe(
        "bert_single_mix",
        model="bert_mix",
        keys={"char_hidden_size": 8, "encoder_hidden_size": 8, "word_emb": False, "fusion": False, "concat_cls": False},
    ),  # fmt: skip
    "freelb_cnn": Recipe("bert_single_mix", model="bert_mix", family="bert_mix", keys={**NARROW, "task": "freelb_cnn"}),
    "freelb_cnn_distill": Recipe(
        "single with logits", model="cls_cnn", keys={"task": "freelb_cnn_distill", "loss": "static_distill"}
    ),
    "bert_classification_pkm": Recipe("bert_single", family="bert_pkm", keys=MEMORIES),
    "bert_classification_pkm, Euclidean": Recipe(
        "bert_pair",
        model="bert_classification_pkm",
        family="bert_pkm",
        keys={**MEMORIES, "mem_positions": [0, 1], "share_memory": True, "distance_fn": "euc", "query_norm": "layer"},
    ),
    "bert_lm_pkm": Recipe("bert_lm", family="bert_lm", keys={**MEMORIES, "distance_fn": "mah"}),
    "bert_pretrain_pkm": Recipe("structbert", family="bert_pretrain", keys=MEMORIES),
    "bert_classification_lopkm": Recipe("bert_single", family="bert_pkm", keys={**MEMORIES, "mem_cells": 1}),
    "bert_lm_lopkm": Recipe("bert_lm", family="bert_lm", keys=MEMORIES),
    "bert_pretrain_lopkm": Recipe("structbert", family="bert_pretrain", keys=MEMORIES),
    "pkm_student": taught("pkm_student"),
    "pkm_student of a kernel": taught("pkm_student", query_net="mlp", distance_fn="euc", init_kernel_alpha=0.4),
    "lopkm_student": taught("lopkm_student"),
    "minilm": student("texts", "minilm"),
    "minilm of other heads": student(
        "bert_pair", "minilm", "minilm", teacher_num_attention_heads=4, relation_heads=8, distilled_layer=-2
    ),
    "tinybert_encoder_only_distill": student("texts", "tinybert_gd", student_fit_size=32),
    "tinybert_for_gd": student(
        "structbert",
        "tinybert_gd",
        teacher_model="bert_pretrain",
        student_fit_size=32,
        mlm_predict_distill=True,
        nsp_predict_distill=True,
    ),
    "tinybert_for_td": student("bert_pair", "tinybert_td", student_fit_size=32),
    "balanced": on_cnn(sampler="balanced"),
    "adafactor": on_cnn(optimizer="adafactor"),
    "adagrad": on_cnn(optimizer="adagrad"),
    "adamw_torch": on_cnn(optimizer="adamw_torch"),
    "adamw_torch_fused": on_cnn(optimizer="adamw_torch_fused"),
    "rmsprop": on_cnn(optimizer="rmsprop"),
    "sgd": on_cnn(optimizer="sgd", learning_rate=0.5, optim_args="momentum=0.9"),
    "exponential_decay": on_cnn(lr_scheduler="exponential_decay"),
    "one_cycle": on_cnn(lr_scheduler="one_cycle"),
    "constant_with_warmup": on_cnn(lr_scheduler="constant_with_warmup", warmup_steps=2),
    "cosine": on_cnn(lr_scheduler="cosine"),
    "cosine_warmup_with_min_lr": on_cnn(lr_scheduler="cosine_warmup_with_min_lr", min_lr_rate=0.1, warmup_steps=0.5),
    "cosine_with_min_lr": on_cnn(lr_scheduler="cosine_with_min_lr", min_lr_rate=0.1),
    "cosine_with_restarts": on_cnn(lr_scheduler="cosine_with_restarts", num_cycles=2),
    "inverse_sqrt": on_cnn(lr_scheduler="inverse_sqrt", timescale=2),
    "greedy": on_cnn(lr_scheduler="greedy", eval_interval=1),
    "reduce_lr_on_plateau": on_cnn(lr_scheduler="reduce_lr_on_plateau", eval_interval=1),
    "linear": on_cnn(lr_scheduler="linear", warmup_steps=1),
    "polynomial": on_cnn(lr_scheduler="polynomial", power=2.0),
    "warmup_stable_decay": on_cnn(lr_scheduler="warmup_stable_decay", num_decay_steps=0.3),
    "smart": on_cnn(task="smart"),
    "static_distill": Recipe("single with logits", model="cls_cnn", family="static_distill"),
    "static_distill of pairs": Recipe("pair with logits", model="match_cnn", keys={"loss": "static_distill"}),
    "static_distill of a BERT": Recipe(
        "bert_single with logits", model="bert_classification", keys={"loss": "static_distill"}
    ),
    "static_distill of a BERT for pairs": Recipe(
        "bert_pair with logits", model="bert_classification", keys={"loss": "static_distill"}
    ),
    "string": Recipe("string", model="cls_cnn"),
    "string_mix": Recipe("string_mix", model="cls_cnn"),
    "taylor_ce": on_cnn(loss="taylor_ce"),
    "warmup_constant": on_cnn(lr_scheduler="warmup_constant"),
    "torchscript": Recipe("single", family="", keys=PLAIN),
    "xdp_cls_cnn": Recipe("single", family="cls_cnn"),
    "xdp_cls_cnn_bce": Recipe("single", family="cls_cnn"),
}


# ---- data: the raw files, and how they are preprocessed


def text(dice: random.Random) -> str:
    return " ".join(dice.choices(WORDS, k=dice.randint(1, 9)))


def labelled(dice: random.Random, size: int) -> list[str]:
    return [f"{text(dice)}\t{LABELS[number % 3]}" for number in range(size)]


def several(dice: random.Random, size: int) -> list[str]:
    return [f"{text(dice)}\t{','.join(dice.sample(LABELS, number % 4))}" for number in range(size)]


def pairs(dice: random.Random, size: int) -> list[str]:
    return [f"{text(dice)}\t{text(dice)}\t{number % 2}" for number in range(size)]


def candidates(dice: random.Random, size: int) -> list[str]:
    """Two queries with three candidates each, then two more, and so on."""
    return [f"q{number // 6}-{number % 2}\t{text(dice)}\t{text(dice)}\t{number % 3}" for number in range(size)]


def labelled_with_logits(dice: random.Random, size: int) -> list[str]:
    return [f"{text(dice)}\t{logits(dice, 3)}\t{LABELS[number % 3]}" for number in range(size)]


def pairs_with_logits(dice: random.Random, size: int) -> list[str]:
    return [f"{text(dice)}\t{text(dice)}\t{logits(dice, 2)}\t{number % 2}" for number in range(size)]


def logits(dice: random.Random, size: int) -> list[float]:
    return [round(dice.gauss(0.0, 2.0), 3) for _ in range(size)]


def triplets(dice: random.Random, size: int) -> list[str]:
    return [f"{text(dice)}\t{text(dice)}\t{text(dice)}" for _ in range(size)]


def sessions(dice: random.Random, size: int) -> list[str]:
    return [f"{number}\t{dice.choice('ab')}\t{text(dice)}" for _ in range(size) for number in range(dice.randint(4, 9))]


def sentences(dice: random.Random, size: int) -> list[str]:
    return [line for number in range(size) for line in ([text(dice)] if number % 5 else [text(dice), ""])]


def numbers(dice: random.Random, size: int) -> list[str]:
    return [f"{text(dice)}\t{text(dice)}\t{dice.randint(0, 10) / 2}" for _ in range(size)]


def prices(dice: random.Random, size: int) -> list[str]:
    return [row.partition("\t")[2] for row in numbers(dice, size)]


def answers(dice: random.Random, size: int) -> list[str]:
    rows = [(text(dice), text(dice)) for _ in range(size)]
    return [f"{question}\t{context}\t{dice.choice(context.split())}" for question, context in rows]


def tagged(dice: random.Random, size: int) -> list[str]:
    rows = [[f"{word}\t{dice.choice(('O', 'B-X', 'I-X'))}" for word in text(dice).split()] for _ in range(size)]
    return [line for row in rows for line in (*row, "")]


@dataclass(frozen=True)
class Data:
    """Lines of raw files, and the x-prepro keys besides the folders."""

    lines: Callable[[random.Random, int], list[str]]
    keys: Mapping[str, Any]


PIECES = {"tokenizer": "bert", "vocab_file": "vocab.txt", "max_len": 24}
CORPUS = {"loader": "corpus", "parser": "none", "break_mode": "eos", **PIECES}
SPACED = {"loader": "corpus", "parser": "none", "break_mode": "complete", "tokenizer": "space", "max_len": 24}
DATA: dict[str, Data] = {
    "single": Data(labelled, {"loader": "single", "processor": "single", "tokenizer": "space", "max_len": 16}),
    "pair": Data(pairs, {"loader": "pair", "processor": "pair", "tokenizer": "space", "max_len": 16}),
    "single with logits": Data(
        labelled_with_logits,
        {"loader": "single_with_logits", "processor": "single_with_logits", "tokenizer": "space", "max_len": 16},
    ),
    "pair with logits": Data(
        pairs_with_logits,
        {"loader": "pair_with_logits", "processor": "pair_with_logits", "tokenizer": "space", "max_len": 16},
    ),
    "bert_single with logits": Data(
        labelled_with_logits, {"loader": "single_with_logits", "processor": "bert_single_with_logits", **PIECES}
    ),
    "bert_single_mix": Data(
        labelled, {"loader": "single_mix", "with_words": True, "processor": "bert_single_mix", **PIECES}
    ),
    "bert_pair_mix": Data(
        pairs, {"loader": "pair_mix", "with_words": True, "processor": "bert_pair_mix", "min_word_count": 2, **PIECES}
    ),
    "bert_pair with logits": Data(
        pairs_with_logits, {"loader": "pair_with_logits", "processor": "bert_pair_with_logits", **PIECES}
    ),
    "string": Data(labelled, {"loader": "single", "processor": "string", "tokenizer": "space", "max_len": 16}),
    "string_mix": Data(labelled, {"loader": "single_mix", "processor": "string_mix", **PIECES}),
    "texts": Data(sentences, {**CORPUS, "processor": "bert_single"}),
    "bert_single": Data(labelled, {"loader": "single", "processor": "bert_single", **PIECES}),
    "bert_prompt": Data(
        labelled,
        {
            "loader": "single",
            "processor": "bert_prompt_single",
            **PIECES,
            "label_length": 2,
            "labels_ext": "words.txt",
            "hard_templates": ["w1 [MASK] w2 [TEXT]", "[TEXT] w3 [MASK]"],
        },
    ),  # fmt: skip
    "prompt_single": Data(
        labelled,
        {"loader": "prompt_single", "processor": "bert_prompt_single", "labels_ext": "words.txt", **PIECES},
    ),
    "several labels": Data(several, {"loader": "single", "processor": "bert_single", "label_separator": ",", **PIECES}),
    "bert_pair": Data(pairs, {"loader": "pair", "processor": "bert_pair", **PIECES}),
    "siamese": Data(pairs, {"loader": "pair", "processor": "sbert_nli", **PIECES}),
    "siamese pair": Data(pairs, {"loader": "pair", "processor": "bert_pair_siamese", **PIECES}),
    "rank": Data(
        candidates,
        {"loader": "rank", "processor": "pair", "tokenizer": "space", "max_len": 16, "target_type": "index"},
    ),
    "bert_rank": Data(candidates, {"loader": "rank", "processor": "bert_pair", "target_type": "number", **PIECES}),
    "siamese rank": Data(candidates, {"loader": "rank", "processor": "sbert_nli", "target_type": "index", **PIECES}),
    "dpr": Data(pairs, {"loader": "dpr", "processor": "bert_dpr", "max_question_length": 8, **PIECES}),
    "qa": Data(answers, {"loader": "qa", "processor": "bert_qa", **PIECES}),
    "numbers": Data(numbers, {"loader": "pair", "processor": "bert_pair", "target_type": "number", **PIECES}),
    "number of one": Data(
        prices,
        {"loader": "single", "processor": "single", "tokenizer": "space", "max_len": 16, "target_type": "number"},
    ),
    "number of two": Data(
        numbers, {"loader": "pair", "processor": "pair", "tokenizer": "space", "max_len": 16, "target_type": "number"}
    ),
    "tagged": Data(tagged, {"loader": "tagged", "processor": "bert_token", **PIECES}),
    "tagged words": Data(tagged, {"loader": "tagged", "processor": "bert_token", "tokenizer": "space", "max_len": 16}),
    "bert_cl_single": Data(labelled, {"loader": "single", "processor": "bert_cl_single", **PIECES}),
    "bert_cl_pair": Data(pairs, {"loader": "pair", "processor": "bert_cl_pair", **PIECES}),
    "bert_cl_triplet": Data(triplets, {"loader": "triplet", "processor": "bert_cl_triplet", **PIECES}),
    "bert_supervised": Data(pairs, {"loader": "pair", "processor": "bert_supervised", **PIECES}),
    "electra": Data(sentences, {**CORPUS, "processor": "electra"}),
    "span_corruption": Data(sentences, {**SPACED, "processor": "span_corruption"}),
    "session_corpus": Data(
        sessions, {"loader": "session_corpus", "processor": "session_corpus", "min_session_size": 2, **PIECES}
    ),
    "bert_lm": Data(sentences, {**CORPUS, "processor": "bert_lm"}),
    "soft prompt": Data(
        sentences,
        {**CORPUS, "loader": "corpus_mix_prompt", "processor": "bert_cl_single_prompt", "prompt_length": 3},
    ),
    "causal_lm": Data(sentences, {**CORPUS, "processor": "causal_lm"}),
    "whole words": Data(sentences, {**CORPUS, "loader": "corpus_mix", "processor": "bert_lm"}),
    "structbert": Data(sentences, {**CORPUS, "processor": "structbert", "break_mode": "complete_doc"}),
    "bert_sop": Data(sentences, {**CORPUS, "processor": "bert_sop", "break_mode": "complete_doc"}),
    "bert_nsp": Data(sentences, {**CORPUS, "processor": "bert_nsp", "break_mode": "complete_doc"}),
}


def write_raw(kind: str, folder: Path) -> dict[str, Any]:
    """Write the raw files of one kind of data, and return the config that preprocesses them into `folder`/data."""
    dice = random.Random(7)
    (folder / "raw").mkdir(parents=True)
    for split, size in SIZES.items():
        rows = DATA[kind].lines(dice, size)
        (folder / f"raw/{split}.txt").write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in (*SPECIAL, *WORDS)), encoding="utf-8")
    (folder / "words.txt").write_text("".join(f"w{2 * number} w{2 * number + 1}\n" for number in range(len(LABELS))))
    keys = dict(DATA[kind].keys)
    keys |= {name: str(folder / keys[name]) for name in ("vocab_file", "labels_ext") if name in keys}
    return {"data_source": str(folder / "raw"), "data_dir": str(folder / "data"), **keys}


def model_of(name: str) -> str:
    return RECIPES[name].model or name


def train_config(name: str, data_dir: Path, save_dir: Path, declared: set[str]) -> dict[str, Any]:
    """Return the training config of a recipe: its family, reduced in size.

    Args:
        name: of the recipe.
        data_dir: preprocessed data.
        save_dir: of the run.
        declared: keys of the model.
    """
    recipe, model = RECIPES[name], model_of(name)
    family = model if recipe.family is None else recipe.family
    parents = [str(FAMILIES / family)] if family else [str(data_dir / "meta")]
    tiny = {f"{recipe.prefix}{key}": value for key, value in TINY.items() if key in declared}
    places = {"data_dir": str(data_dir), "save_dir": str(save_dir)}
    places |= {"teacher_pretrained_model": str(save_dir) + "-teacher.pt"} if recipe.prefix else {}
    places |= {"model_path": str(save_dir) + "-script.pth"} if "model_path" in declared else {}
    ignored = {"__ignore__": DROPPED} if family else {}
    return {"__parent__": parents, **ignored, f"{recipe.prefix}model": model, **COMMON, **tiny, **places, **recipe.keys}
