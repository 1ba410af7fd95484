"""Names of few-shot learning, of ranking and of readable pre-training that stand in users' configs."""

from __future__ import annotations

from xdpx.config import catalogue

NAMES = {
    "task": {"fewshot", "rmr", "slm"},
    "model": {"protonet"},
    "loss": {"fewshot", "listnet", "ranknet"},
    "sampler": {"episode", "rank"},
    "loader": {"corpus_mix_prompt", "prompt_single", "rank"},
    "processor": {"bert_cl_single_prompt"},
}
DOCUMENTED = {
    ("sampler", "episode"): {"n_way": 10, "k_shot": 5, "train_episodes": 500, "dev_episodes": 50},
    ("model", "protonet"): {"proj_hidden_size": 768},
    ("loss", "fewshot"): {"temperature": 0.05, "use_r_dropout": False, "kl_alpha": 0.5},
    ("loader", "corpus_mix_prompt"): {"prompt_length": 20, "min_word_len": 1},
    ("loader", "rank"): {"lower": True, "skip_bad_lines": False, "remove_duplicate": False},
}


def test_no_name_is_lost() -> None:
    for kind, names in NAMES.items():
        assert set(catalogue.names(kind)) >= names


def test_documented_keys_keep_their_defaults() -> None:
    for (kind, name), keys in DOCUMENTED.items():
        defaults = {item.key: item.default for item in catalogue.entry(kind, name).parameters}
        assert {key: defaults[key] for key in keys} == keys
