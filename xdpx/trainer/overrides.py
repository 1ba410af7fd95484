"""Methods that users of the original override and that this Trainer never calls, with what to use instead."""

from __future__ import annotations

from xdpx.logger import log

_ACCELERATE = "accelerator_config and the other arguments"
_CLIPPING = "max_grad_norm, or on_pre_optimizer_step of a callback"
_GATHERING = "gather_function, or evaluation_loop"
_LOADERS = "get_train_dataloader, get_eval_dataloader and get_test_dataloader"
_LOOP = "_inner_training_loop, training_step, or callbacks"
_SAVING = "_save_checkpoint, or on_save of a callback"
_ROTATING = "save_total_limit, or on_save of a callback"
_VENDOR = ""

UNCALLED = {
    "create_accelerator_and_postprocess": _ACCELERATE,
    "_build_accelerator_args": _ACCELERATE,
    "_fsdp_qlora_plugin_updates": _ACCELERATE,
    "propagate_args_to_deepspeed": "deepspeed",
    "_clip_grad_norm": _CLIPPING,
    "_get_grad_norm": _CLIPPING,
    "_nested_gather": _GATHERING,
    "_pad_across_processes": _GATHERING,
    "_gather_and_numpify": _GATHERING,
    "prediction_loop": "evaluation_loop",
    "_get_collator_with_removed_columns": _LOADERS,
    "_run_epoch": _LOOP,
    "_init_training_state": _LOOP,
    "_prepare_for_training": _LOOP,
    "_finalize_training": _LOOP,
    "_save_optimizer_and_scheduler": _SAVING,
    "_save_rng_state": _SAVING,
    "_save_scaler": _SAVING,
    "_load_scaler": "_load_optimizer_and_scheduler",
    "_rotate_checkpoints": _ROTATING,
    "_sorted_checkpoints": _ROTATING,
    "_issue_warnings_after_load": "_load_from_checkpoint",
    "_move_model_to_device": "place_model_on_device of the arguments",
    "_track_num_input_tokens": "include_num_input_tokens_seen",
    "_activate_neftune": "neftune_noise_alpha",
    "_deactivate_neftune": "neftune_noise_alpha",
    "get_total_train_batch_size": "set_initial_training_values",
    "_validate_args": "the arguments of __init__",
    "_update_auto_batch_size": "auto_find_batch_size",
    "get_tp_size": _VENDOR,
    "get_cp_size": _VENDOR,
    "get_sp_size": _VENDOR,
    "_defer_fsdp_gradient_reduction": _VENDOR,
    "_has_mixed_mesh_grads": _VENDOR,
    "_mixed_mesh_grad_norm": _VENDOR,
    "_sync_replicated_trainable_parameters": _VENDOR,
    "_prepare_context_parallel_inputs": _VENDOR,
    "_save_tpu": _VENDOR,
    "torch_jit_model_eval": _VENDOR,
    "ipex_optimize_model": _VENDOR,
}
"""By name, what has that effect here; '' if nothing has. Names of transformers 4.38 and later."""


def warn_of_uncalled(kind: type, base: type) -> None:
    """Warn of each method that a class derived from the Trainer overrides in vain.

    Args:
        kind: the user's class.
        base: the Trainer, whose own methods and those of its bases do not count.
    """
    for owner in kind.__mro__[: kind.__mro__.index(base)]:
        for name in UNCALLED.keys() & vars(owner).keys():
            instead = f" Use {UNCALLED[name]}." if UNCALLED[name] else ""
            log.warning(
                f"{owner.__name__}.{name}: this Trainer never calls it, so overriding it has no effect.{instead}",
                once=True,
            )
