"""Names of parsers, scripts and metrics that stand in users' configs: they may become more, never fewer."""

from __future__ import annotations

from xdpx.commands.script import SHIPPED
from xdpx.config import catalogue
from xdpx.metrics.named import CLASSIFICATION, OF_SCORES, OF_TOKENS

PARSERS = {"none", "csv", "json", "jsonl", "excel", "parquet", "table", "datasets"}
SCRIPTS = {
    "aggregate_meta", "aggregate_results", "bce_threshold", "clean_checkpoints", "confusion_matrix", "cut_file",
    "diff_data", "diff_meta", "diff_params", "prune_heads", "sub_data", "verify",
}  # fmt: skip
METRICS = {
    "mcc", "kappa", "balanced_acc", "top*_acc", "micro_f1", "macro_f1", "weighted_f1", "f1_*", "best_f1",
    "best_threshold", "average_precision", "mrr", "ndcg", "ndcg@*", "hit@*", "pearson", "spearman", "mse", "mae", "ppl",
}  # fmt: skip
KEYS = {
    "bce_threshold": {
        "predict_file", "target_map_file", "eval_file", "out_file", "mode", "min_threshold", "max_threshold", "beta",
        "resolution", "gap",
    },
    "confusion_matrix": {"predict_file", "target_map_file", "out_file", "target_col_name", "pred_col_name"},
    "prune_heads": {"train_subset", "train_steps", "valid_subset", "prune_config", "save_path", "save_dir", "config"},
}  # fmt: skip


def test_no_parser_script_or_metric_is_lost() -> None:
    assert set(catalogue.names("parser")) >= PARSERS
    assert set(SHIPPED) >= SCRIPTS
    assert {*CLASSIFICATION, *OF_SCORES, *OF_TOKENS} >= METRICS


def test_scripts_with_a_config_keep_their_keys_and_defaults() -> None:
    for name, keys in KEYS.items():
        assert {item.key for item in catalogue.entry("command", f"x-script {name}").parameters} >= keys
    defaults = {item.key: item.default for item in catalogue.entry("command", "x-script bce_threshold").parameters}
    documented = {"mode": "f1", "min_threshold": 0.4, "max_threshold": 1.0, "beta": 1.0, "resolution": 4, "gap": 0.5}
    assert {key: defaults[key] for key in documented} == documented
