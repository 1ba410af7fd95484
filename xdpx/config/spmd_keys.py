"""What `engine: spmd` supports, checked without importing jax: registered names, their keys, and sizes of a mesh."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from xdpx.config.catalogue import entry
from xdpx.config.faults import Fault

if TYPE_CHECKING:
    from xdpx.config.loading import Run

SPMD = "spmd"
NEEDED_PACKAGES = ("jax", "flax", "optax")
AXES = 3
REST = -1

COUNTERPARTS: Mapping[str, frozenset[str]] = {
    "model": frozenset({"bert_classification", "bert_lm", "causal_lm"}),
    "loss": frozenset({"causal_lm", "cross_entropy", "masked_lm"}),
    "optimizer": frozenset({"adam", "lamb"}),
    "task": frozenset({"default"}),
}
"""Kind -> registered names that are also implemented on JAX."""

_BERT = """
    pretrained_model strict_size from_tf tf_names tf_format auto_model layer_lr_decay keep_emb_lr top_lr_ratio fix_lm
    gradient_checkpointing bert_wd extra_config vocab_size pad_index max_len attention_probs_dropout_prob
    directionality hidden_act
    hidden_dropout_prob hidden_size initializer_range intermediate_size max_position_embeddings num_attention_heads
    num_hidden_layers type_vocab_size
"""
HONOURED: Mapping[str, frozenset[str]] = {
    name: frozenset(words.split())
    for name, words in {
        "model bert_classification": f"{_BERT} output_dropout_prob load_cls_weights num_classes",
        "model bert_lm": _BERT,
        "model causal_lm": """
            pretrained_model strict_size gradient_checkpointing vocab_size pad_index max_len hidden_size
            intermediate_size num_hidden_layers num_attention_heads num_key_value_heads max_position_embeddings
            rope_theta rms_norm_eps initializer_range attention_dropout tie_word_embeddings
        """,
        "loss cross_entropy": """
            negative_classes_in_f1 predict_threshold query_level_f1 f1_average use_r_dropout kl_alpha num_classes
            label_values major_metric metrics loss_unit
        """,
        "loss masked_lm": "major_metric metrics loss_unit",
        "loss causal_lm": "major_metric metrics loss_unit",
        "optimizer adam": "learning_rate adam_betas adam_eps weight_decay",
        "optimizer lamb": "learning_rate adam_betas adam_eps weight_decay",
        "task default": "model loss dataset dataset_format sampler batch_by_len",
        "command x-train": """
            data_dir save_dir overwrite auto_suffix resume max_epoch max_update batch_size update_freq force_sync
            max_loss min_lr callbacks report_to seed cache_train_file lazy_load data_size ema_decay train_subset
            exclude_valid_from_train train_steps task processor engine mesh log_interval log_file viz_ref_dir figext
            eval_interval valid_subset max_eval_steps major_metric ascending_metric tolerance min_steps
            eval_interval_warmup eval_interval_warmup_mutiplier eval_interval_warmup_multiplier inspect_gradient profile
            save save_best_only save_last_only save_above_score save_full_checkpoint save_interval learning_rate
            clip_norm optimizer lr_scheduler cuda bf16 distributed_world_size distributed_rank distributed_init_method
            distributed_backend ddp_backend bucket_cap_mb empty_cache_freq
        """,
    }.items()
}
"""Class -> keys with the same effect on both engines. Any other key of these classes must be at its default."""

REMEDIES = {
    "fp16": "Use bf16: true.",
    "auto_ga": "Lower batch_size and raise update_freq, or shard the weights over devices with mesh.",
    "device_id": "Leave it out: mesh says how many devices are used.",
}


def spmd_faults(run: Run) -> Iterator[Fault]:
    """Yield a fault for each key of a run that `engine: spmd` does not support, and for missing packages."""
    absent = [name for name in NEEDED_PACKAGES if find_spec(name) is None]
    if absent:
        problem = f"is spmd, which needs {', '.join(absent)}, not installed here."
        yield Fault("engine", problem, "Run: pip install 'xdpx[jax]'.")
    reported: set[str] = set()
    for (prefix, kind), name in run.picks.items():
        computed = COUNTERPARTS.get(kind)
        if computed and name not in computed:
            allowed = f"Use one of: {', '.join(sorted(computed))}; or engine: pytorch."
            yield Fault(f"{prefix}{kind}", f"is '{name}', which the engine spmd does not support.", allowed)
        elif f"{kind} {name}" in HONOURED:
            keys = {item.key for item in entry(kind, name).parameters} - HONOURED[f"{kind} {name}"]
            for key in sorted((keys & run.changed) - reported):
                reported.add(key)
                remedy = REMEDIES.get(key, "Leave it out.")
                problem = f"is {run.values[key]!r}, which the engine spmd does not support."
                yield Fault(key, problem, f"{remedy} Or use engine: pytorch.")


def mesh_conflicts(mesh: Sequence[int] | None) -> list[tuple[str, str]]:
    """Return (key, problem) if `mesh` is not a valid shape: three sizes from 1, of which one may be -1; else []."""
    if mesh is None:
        return []
    sound = len(mesh) == AXES and all(size > 0 or size == REST for size in mesh) and list(mesh).count(REST) <= 1
    return (
        []
        if sound
        else [("mesh", f"is {list(mesh)}. Use three numbers from 1, one of which may be -1, e.g. [-1, 1, 1].")]
    )
