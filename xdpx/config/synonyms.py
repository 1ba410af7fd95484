"""Names that other tools use for keys and values of our configs.

A *value* with exactly the same meaning is accepted and replaced by our name (`optimizer: adamw` becomes `adam`), so
that logs, args.py and comparisons contain only one name. A *key* is never accepted under a second name, because a
parent and its child could use different ones and silently contradict each other; the error message names our key.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, NamedTuple

from xdpx.config import catalogue


class Called(NamedTuple):
    """Our names of a key, of which the first that the command knows is meant, and a note on differences."""

    names: tuple[str, ...]
    note: str = ""


def _called(words: str, *names: str, note: str = "") -> dict[str, Called]:
    return dict.fromkeys(words.split(), Called(names, note))


KEYS: dict[str, Called] = {
    **_called("lr base_lr initial_lr lr_max peak_lr", "learning_rate"),
    **_called("epoch epochs n_epochs nb_epochs num_epochs num_train_epochs max_epochs train_epochs", "max_epoch"),
    **_called("max_steps num_steps num_train_steps num_training_steps max_iters iterations", "max_update"),
    **_called("bs batch train_batch_size global_batch_size minibatch_size", "batch_size"),
    **_called(
        "per_device_train_batch_size per_gpu_train_batch_size per_device_batch_size micro_batch_size",
        "batch_size", note="It counts the samples of all devices together.",
    ),
    **_called(
        "eval_batch_size per_device_eval_batch_size valid_batch_size test_batch_size",
        "batch_size", note="One key serves training and scoring; x-eval and x-pred take their own.",
    ),
    **_called(
        "gradient_accumulation_steps accumulate_grad_batches grad_accum grad_accumulation_steps accumulation_steps",
        "update_freq",
    ),
    **_called("max_grad_norm clip_grad_norm grad_clip grad_norm_clip gradient_clip gradient_clip_val", "clip_norm"),
    **_called("output_dir output_path logging_dir log_dir run_dir exp_dir model_dir", "save_dir", "data_dir"),
    **_called("overwrite_output_dir", "overwrite"),
    **_called("resume_from_checkpoint resume_training", "resume", note="resume: auto continues, or begins."),
    **_called("random_seed random_state manual_seed data_seed", "seed"),
    **_called("max_length max_seq_length max_seq_len seq_len seq_length sequence_length", "max_len"),
    **_called(
        "model_name model_name_or_path base_model pretrained pretrained_model_name pretrained_model_name_or_path",
        "pretrained_model", note="The network itself is chosen by model.",
    ),
    **_called("optim optimizer_type optimizer_name", "optimizer"),
    **_called("scheduler lr_schedule lr_scheduler_type lr_scheduler_name scheduler_type", "lr_scheduler"),
    **_called(
        "warmup_ratio warmup_proportion warmup_fraction",
        "warmup_steps", note="A number below 1 is a share of all updates.",
    ),
    **_called("num_warmup_steps warmup_updates", "warmup_steps"),
    **_called("wd l2 l2_penalty", "weight_decay"),
    **_called("beta1 beta2 betas adam_beta1 adam_beta2", "adam_betas", note="It is a list: [0.9, 0.999]."),
    **_called("eps epsilon adam_epsilon", "adam_eps"),
    **_called("metric metric_for_best_model monitor best_metric eval_metric", "major_metric"),
    **_called("greater_is_better maximize", "ascending_metric"),
    **_called(
        "early_stopping early_stopping_patience early_stop",
        "tolerance", note="It counts updates since the best score, not evaluations.",
    ),
    **_called(
        "eval_steps eval_every eval_freq evaluation_steps val_check_interval validation_interval",
        "eval_interval", note="It counts updates; -1: at the end only.",
    ),
    **_called(
        "eval_strategy evaluation_strategy", "eval_interval", note="Evaluation is by updates; -1: at the end only."
    ),
    **_called("logging_steps log_steps log_every log_freq log_every_n_steps print_freq", "log_interval"),
    **_called("save_steps save_every save_freq", "save_interval"),
    **_called("save_total_limit", "save_last_only", note="save_best_only keeps the best; both keep both."),
    **_called("load_best_model_at_end", "checkpoint", "save_best_only", note="x-eval and x-pred take the best anyway."),
    **_called("eval_delay", "eval_interval_warmup"),
    **_called("auto_find_batch_size", "auto_ga", note="It cuts the batch and keeps the update."),
    **_called("torch_compile", "compile"),
    **_called("full_determinism", "deterministic"),
    **_called("no_cuda use_cpu", "cuda", note="It says the opposite: cuda: false."),
    **_called("gpu gpus device devices gpu_id", "device_id", note="cuda: false computes on the CPU, nproc=2 on two."),
    **_called("n_gpu num_gpus num_processes nproc_per_node", "nproc"),
    **_called("precision mixed_precision amp dtype torch_dtype half", "bf16", note="Or fp16, each true or false."),
    **_called("dropout_rate dropout_prob", "dropout"),
    **_called("label_smoothing label_smoothing_factor", "smoothing"),
    **_called("emb_dim emb_size embed_dim", "embedding_dim"),
    **_called("hidden_dim d_model", "hidden_size"),
    **_called("n_layers n_layer", "num_hidden_layers"),
    **_called("n_heads n_head num_heads", "num_attention_heads"),
    **_called("criterion loss_fn loss_function", "loss"),
    **_called("num_labels n_classes num_class", "num_classes", note="x-prepro counts them: leave it out."),
    **_called("num_workers dataloader_num_workers num_proc", "workers"),
    **_called("ckpt ckpt_path checkpoint_path", "checkpoint", "pretrained_model"),
    **_called("split eval_split eval_set", "valid_subset"),
    **_called("train_split", "train_subset"),
    **_called("dataset_path dataset_dir data_path input_file input_dir", "data_source", "data_dir"),
    **_called(
        "train_file train_path validation_file dev_file test_file",
        "data_files", "data_dir", note="data_source names the folder, data_files which file is train, dev, test.",
    ),
    **_called(
        "text_column label_column text_field label_field column_names columns", "fields",
        note="It lists the columns in their order.",
    ),
    **_called("sep separator", "delimiter"),
    **_called("do_lower_case lowercase lower_case", "lower"),
    **_called("vocab_path vocabulary", "vocab_file"),
    **_called("min_freq min_count", "threshold"),
}  # fmt: skip
"""Another tool's key -> our key. None of the former is a key of any command or module here."""

VALUES: dict[str, dict[str, str]] = {
    "optimizer": {"adamw": "adam", "adamw_hf": "adam", "AdamW": "adam", "Adam": "adam", "SGD": "sgd"},
    "engine": {"jax": "spmd", "torch": "pytorch"},
    "loss": {"ce": "cross_entropy", "crossentropy": "cross_entropy", "CrossEntropyLoss": "cross_entropy"},
    "lr_scheduler": {
        "linear_with_warmup": "linear", "warmup_linear": "linear", "cosine_with_warmup": "cosine",
    },
    "major_metric": {
        "accuracy": "acc", "eval_accuracy": "acc", "eval_acc": "acc", "valid_acc": "acc", "balanced_accuracy":
        "balanced_acc", "eval_loss": "loss", "valid_loss": "loss", "val_loss": "loss", "eval_f1": "f1",
        "valid_f1": "f1", "roc_auc": "auc", "matthews_correlation": "mcc", "matthews_corrcoef": "mcc",
        "cohen_kappa": "kappa", "pearsonr": "pearson", "spearmanr": "spearman", "perplexity": "ppl",
        **{
            f"{part}_{average}": f"{average}_{part}"
            for part in ("precision", "recall", "f1") for average in ("micro", "macro", "weighted", "samples")
        },
    },
}  # fmt: skip
"""Key -> {another tool's value -> ours}. A name that is registered, by us or the user, always means itself."""


def with_own_words(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a run with synonyms replaced by our names."""
    return {key: _own_word(key, value) for key, value in values.items()}


def _own_word(key: str, value: object) -> Any:
    kind = next((kind for kind in VALUES if key == kind or key.endswith(f"_{kind}")), None)
    if kind is None or not isinstance(value, str) or value not in VALUES[kind]:
        return value
    taken = kind in catalogue.kinds() and value in catalogue.names(kind)
    return value if taken else VALUES[kind][value]


def name_here(key: str, known: Container[str]) -> str:
    """Return our name, among `known`, for another tool's key; '' if there is none."""
    return next((name for name in KEYS[key].names if name in known), "") if key in KEYS else ""


def remedy(key: str, known: Container[str]) -> str:
    """Return a sentence with our name for another tool's key and notes on differences; '' if there is none."""
    name = name_here(key, known)
    return f"It is called '{name}' here. {KEYS[key].note}".rstrip() if name else ""
