"""Names and defaults of the first XDPX that stand in users' configs: they may become more, never fewer."""

from __future__ import annotations

from xdpx.commands.script import SHIPPED
from xdpx.config import catalogue

NAMES = {
    "tokenizer": {"auto", "bert", "bert_id", "char_zh", "nltk", "space"},
    "optimizer": {"adam", "lamb", "pair", "sparse_adam"},
    "processor": {"string", "string_mix"},
    "task": {"bert_cl", "pkm_distill"},
    "loss": {"bert_cl", "pkm_local_distill"},
    "model": {
        "mlman", "torchscript", "savedmodel", "bert_teacher_for_pkm", "pkm_student", "lopkm_student",
        *(f"bert_{use}_{kind}" for use in ("classification", "lm", "pretrain") for kind in ("pkm", "lopkm")),
    },
}  # fmt: skip
DOCUMENTED = {
    ("optimizer", "sparse_adam"): {"adam_betas": [0.9, 0.999], "adam_eps": 1e-6},
    ("optimizer", "pair"): {"major_optimizer": "adam", "second_optimizer": "adam", "follow_lr_schedule": False},
    ("model", "bert_lm_pkm"): {
        "share_memory": False, "mem_k_dim": 256, "mem_heads": 4, "mem_knn": 32, "mem_keys": 512, "query_norm": None,
        "distance_fn": "dot", "kernel_alpha": 0.5, "mem_sparse": False, "input_dropout": 0.0, "query_dropout": 0.0,
    },
    ("model", "pkm_student"): {"query_net": "linear", "init_kernel_alpha": 0.5, "mem_keys": 512},
    ("model", "mlman"): {"output_dropout_prob": 0.1, "proj_hidden_size": 768},
    ("model", "savedmodel"): {"signature_def_key": "serving_default", "input_flags": {}, "input_name_map": {}},
    ("loss", "bert_cl"): {"supervised": False, "negative_proto_size": 256, "lambda_proto_loss": 0.01},
    ("task", "bert_cl"): {
        "cluster_warmup": 0, "cluster_interval": 10000, "num_cluster": [], "cluster_niter": 50, "cluster_nredo": 3,
        "max_points_per_centroid": 1000, "min_points_per_centroid": 10, "data_size_for_cluster": 10000,
    },
    ("command", "x-script pkm_init"): {
        "coarse_kmeans_iter": 500, "coarse_kmeans_seed": 1, "coarse_kmeans_n_init": 50, "pca_iter": 200,
        "coarse_kmeans_reassignment_ratio": 0.01, "fine_kmeans_iter": 2000, "fine_kmeans_seed": 1,
        "fine_kmeans_n_init": 4, "value_init_iter": 1000, "value_finetune_iter": 8000, "value_finetune_lr": 0.001,
    },
}  # fmt: skip


def test_no_name_is_lost() -> None:
    for kind, names in NAMES.items():
        assert set(catalogue.names(kind)) >= names
    assert {"pkm_init", "run_profiling"} <= set(SHIPPED)


def test_documented_keys_keep_their_defaults() -> None:
    for (kind, name), keys in DOCUMENTED.items():
        defaults = {item.key: item.default for item in catalogue.entry(kind, name).parameters}
        assert {key: defaults[key] for key in keys} == keys
