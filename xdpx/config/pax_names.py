"""Names of Pax and their equivalents here, for error messages and for docs/experiments.md."""

from __future__ import annotations

from collections.abc import Mapping

PAX_NAMES: Mapping[str, str] = {
    # fields of experiments
    "ACTIVATION_CLS": "ACTIVATION, by name: 'RELU', 'GELU', 'SILU' or 'SQUARED_RELU'",
    "CHECKPOINT_SAVE_MAX_TO_KEEP": "CHECKPOINT_MAX_TO_KEEP",
    "DECAY_END": "LR_LRED_DECAY_END",
    "ENABLE_BFLOAT16": "FPROP_DTYPE, 'bfloat16'",
    "MESH_SHAPE": "ICI_MESH_SHAPE",
    "NUM_TRAIN_STEPS": "MAX_STEPS",
    # methods of experiments, which nothing calls here
    "decode_programs": "decode_datasets()",
    "eval_programs": "datasets(), its inputs with is_training=False",
    "executor": "nothing to define: jobs are run in one way",
    "get_input_specs_provider_params": "input_specs()",
    "partitioner": "ICI_MESH_SHAPE and rules()",
    "search": "search_space()",
    "sub_experiments": "search_space()",
    "train_programs": "datasets(), its input with is_training=True",
    # fields of templates
    "activation_split_dims_mapping": "rules() of the experiment",
    "atten_dropout_prob": "dropout_prob",
    "atten_logit_cap": "logit_cap",
    "block": "body",
    "fprop_for_prefix": "nothing to set: a prompt is always read in one pass",
    "ici_mesh_shape": "ICI_MESH_SHAPE of the experiment",
    "dcn_mesh_shape": "DCN_MESH_SHAPE of the experiment",
    "inputs_split_mapping": "rules() of the experiment",
    "internal_enable_per_dim_scale": "per_dim_scale",
    "lazy_prefix_broadcast": "nothing to set: a prompt is read once for all of its samples",
    "ln_tpl": "norm_tpl",
    "mesh_axis_names": "MESH_AXIS_NAMES of the experiment",
    "model_dims": "input_dims",
    "moe_layer_tpl": "moe_tpl",
    "relu_dropout_prob": "hidden_dropout_prob",
    "repeat_prefix_sep": "nothing to set: weights of repeated layers have an axis of their own, 'layers'",
    "seqlen": "nothing to set: max_decode_steps counts new tokens only",
    "tr_atten_tpl": "attention_tpl",
    "tr_fflayer_tpl": "ff_tpl",
    "transformer_layer_params_tpl": "layer_tpl",
    "use_rotary_position_emb": "rotary_tpl, a RotaryPositionalEmbedding.HParams()",
}
"""Field or method of Pax that does not exist here -> what to write instead."""


def of_pax(name: str) -> str:
    """Return a sentence with the equivalent of a field or method of Pax; '' for other names."""
    return f"Pax's {name} is here: {PAX_NAMES[name]}." if name in PAX_NAMES else ""
