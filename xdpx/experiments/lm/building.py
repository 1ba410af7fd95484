"""Build templates (model, learner, schedule, training) from the fields of the language model recipes."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from xdpx.config.faults import ConfigError, Fault
from xdpx.config.hparams import BaseHParams
from xdpx.models.spmd import language_model as lm
from xdpx.models.spmd.initialisers import WeightInit
from xdpx.models.spmd.layers import activations
from xdpx.models.spmd.layers.attention import Attention
from xdpx.models.spmd.layers.embeddings import Embedding, FullSoftmax, SharedEmbeddingSoftmax
from xdpx.models.spmd.layers.norms import LayerNorm
from xdpx.models.spmd.layers.pipelined import Pipelined
from xdpx.models.spmd.layers.positions import (
    PositionalEmbedding,
    RelativeBias,
    RotaryPositionalEmbedding,
    TrainablePositionalEmbedding,
)
from xdpx.models.spmd.layers.repeated import StackedTransformerRepeated
from xdpx.models.spmd.layers.transformer import StackedTransformer, Transformer, TransformerFeedForward
from xdpx.models.spmd.sharding import TRANSFORMER_RULES
from xdpx.optimizers.spmd import optimizers, ramps, schedules
from xdpx.optimizers.spmd.adafactor import ShardedAdafactor
from xdpx.optimizers.spmd.learner import Learner
from xdpx.tasks.spmd.early_stopping import TargetReached
from xdpx.tasks.spmd.single_task import SingleTask
from xdpx.tasks.spmd.train_fields import TrainHParams
from xdpx.utils.axis_splits import MDL, STAGE, Rules

Fields = Any
"""A recipe of `model_params`. Untyped, because that module imports this one."""

ACTIVATIONS: dict[str, Any] = {
    "RELU": activations.ReLU,
    "GELU": activations.GELU,
    "SILU": activations.SiLU,
    "SQUARED_RELU": activations.SquaredReLU,
}


# ---- language models


def language_task(fields: Fields, *, in_stages: bool = True) -> Any:
    """Return the task of a language model.

    Args:
        fields: the recipe.
        in_stages: False repeats the layers instead of pipelining them: the same model without pipeline bubbles.
    """
    model = lm.LanguageModel.HParams(lm_tpl=_network(fields, in_stages=in_stages), fprop_dtype=_dtype(fields))
    if fields.INIT_STD is not None:
        model.params_init = WeightInit.Gaussian(fields.INIT_STD)
    task = SingleTask.HParams(name="xformer_task", model=model, train=training(fields))
    if fields.TARGET_LOG_PPLX is not None:
        task.early_stopping_fn = TargetReached.HParams(metric="log_pplx", target=fields.TARGET_LOG_PPLX)
    return task


def _dtype(fields: Fields) -> Any:
    try:
        found = jnp.dtype(fields.FPROP_DTYPE)
    except TypeError:
        found = None
    if found is None or not jnp.issubdtype(found, jnp.floating):
        fault = Fault("FPROP_DTYPE", f"is {fields.FPROP_DTYPE!r}.", "Use 'float32', 'bfloat16' or 'float16'.")
        raise ConfigError(type(fields).__name__, [fault])
    return found


def language_rules(fields: Fields) -> Rules:
    """Return the sharding rules: pipeline stages along `stage`, and saved activations over mdl if requested.

    Before and after a pipeline, where all stages would compute the same, the stages share the tokens of a row.
    """
    own: Rules = ((STAGE, STAGE), ("activation_length", STAGE)) if fields.NUM_STAGES else ()
    if fields.TRAINING_OPTIMIZED_SHARDING:
        own = (*own, ("activation_embed", MDL))
    names = {name for name, _ in own}
    return (*own, *(rule for rule in TRANSFORMER_RULES if rule[0] not in names))


def _network(fields: Fields, *, in_stages: bool) -> Any:
    return lm.TransformerLm.HParams(
        vocab_size=fields.VOCAB_SIZE,
        model_dims=fields.MODEL_DIMS,
        hidden_dims=fields.hidden_dims,
        num_heads=fields.num_heads,
        dim_per_head=fields.DIMS_PER_HEAD,
        packed_input=fields.PACKED_INPUT,
        softmax_tpl=_softmax(fields),
        separate_embedding_tpl=_embedding(fields),
        position_emb_tpl=_positions(fields),
        stacked_transformer_tpl=_stack(fields, in_stages=in_stages),
        final_ln_tpl=_norm(fields) if fields.NORM_POLICY != "post" else None,
        input_dropout_prob=fields.DROPOUT_PROB,
    )


def _stack(fields: Fields, *, in_stages: bool) -> Any:
    """Return the layers: pipelined, scanned, or unrolled."""
    block, layers = _block(fields), fields.NUM_LAYERS
    if fields.NUM_STAGES and in_stages:
        each = layers // (fields.NUM_STAGES * fields.CIRCULAR_REPEAT)
        return Pipelined.HParams(
            body=_in_a_row(block, each, repeated=fields.USE_REPEATED_LAYER, policy="everything"),
            num_stages=fields.NUM_STAGES,
            circular_repeat=fields.CIRCULAR_REPEAT,
            microbatch_size=fields.MICROBATCH_SIZE,
            num_microbatches=fields.NUM_MICROBATCHES,
            checkpoint_policy=fields.CHECKPOINT_POLICY,
        )
    repeated = fields.USE_REPEATED_LAYER or not in_stages
    return _in_a_row(block, layers, repeated=repeated, policy=fields.CHECKPOINT_POLICY)


def _in_a_row(block: BaseHParams, layers: int, *, repeated: bool, policy: str) -> Any:
    if repeated:
        return StackedTransformerRepeated.HParams(body=block, x_times=layers, checkpoint_policy=policy)
    return StackedTransformer.HParams(layer_tpl=block, num_layers=layers, checkpoint_policy=policy)


def _block(fields: Fields) -> Any:
    attention = Attention.HParams(
        combine_qkv=fields.COMBINE_QKV and fields.NUM_KV_HEADS is None,
        use_bias=fields.USE_ATTENTION_BIAS,
        logit_cap=fields.ATTEN_LOGIT_CAP,
        dropout_prob=fields.DROPOUT_PROB,
        rotary_tpl=RotaryPositionalEmbedding.HParams() if fields.USE_ROTARY_POSITION_EMB else None,
        relative_bias_tpl=RelativeBias.HParams() if fields.RELATIVE_BIAS else None,
    )
    feed_forward = TransformerFeedForward.HParams(
        activation_tpl=ACTIVATIONS[fields.ACTIVATION].HParams(),
        use_gated_activation=fields.USE_GATED_ACTIVATION,
        has_bias=fields.USE_BIAS,
        hidden_dropout_prob=fields.DROPOUT_PROB,
    )
    return Transformer.HParams(
        num_kv_heads=fields.NUM_KV_HEADS,
        norm_policy=fields.NORM_POLICY,
        norm_tpl=_norm(fields),
        attention_tpl=attention,
        ff_tpl=feed_forward,
        dropout_prob=fields.DROPOUT_PROB,
    )


def _norm(fields: Fields) -> Any:
    return LayerNorm.HParams(epsilon=fields.LAYERNORM_EPSILON)


def _softmax(fields: Fields) -> Any:
    if fields.SEPARATE_EMBEDDING:
        return FullSoftmax.HParams(soft_cap_logits=fields.SOFTMAX_CAP_LOGITS)
    return SharedEmbeddingSoftmax.HParams(soft_cap_logits=fields.SOFTMAX_CAP_LOGITS, lookup_style=fields.LOOKUP_STYLE)


def _embedding(fields: Fields) -> Any:
    if not fields.SEPARATE_EMBEDDING:
        return None
    return Embedding.HParams(lookup_style=fields.LOOKUP_STYLE, scale_sqrt_depth=True)


def _positions(fields: Fields) -> Any:
    if fields.USE_ROTARY_POSITION_EMB or fields.RELATIVE_BIAS:
        return None
    if fields.TRAINABLE_POSITION_EMB:
        return TrainablePositionalEmbedding.HParams(
            max_seq_length=fields.TRAINABLE_PE_MAX_SEQ_LEN, lookup_style=fields.LOOKUP_STYLE
        )
    return PositionalEmbedding.HParams()


# ---- classification


def classification_task(fields: Fields) -> Any:
    """Return the task of a stack of dense layers that classifies vectors."""
    from xdpx.models.spmd.classification_model import ClassificationModel
    from xdpx.models.spmd.layers.linears import MLPBlock

    network = MLPBlock.HParams(
        num_layers=fields.NUM_LAYERS,
        input_dims=fields.INPUT_DIMS,
        hidden_dims=fields.HIDDEN_DIMS,
        output_dims=fields.HIDDEN_DIMS,
    )
    softmax = FullSoftmax.HParams(input_dims=fields.HIDDEN_DIMS, num_classes=fields.NUM_CLASSES, has_bias=True)
    model = ClassificationModel.HParams(
        network_tpl=network, softmax_tpl=softmax, input_field="inputs", label_field="class_ids"
    )
    return SingleTask.HParams(name="classification_task", model=model, train=training(fields))


# ---- training


def training(fields: Fields) -> Any:
    """Return the training settings of a recipe."""
    return TrainHParams(
        learner=Learner.HParams(optimizer=_optimizer(fields)),
        num_train_steps=fields.MAX_STEPS,
        random_seed=fields.RANDOM_SEED,
        save_interval_steps=fields.CHECKPOINT_EVERY_N_STEPS,
        save_max_to_keep=fields.CHECKPOINT_MAX_TO_KEEP,
        summary_interval_steps=fields.SUMMARY_INTERVAL_STEPS,
        eval_interval_steps=fields.EVAL_INTERVAL_STEPS,
        eval_skip_train=fields.EVAL_SKIP_TRAIN,
        profiler_num_steps=fields.PROFILER_NUM_STEPS,
        profiler_min_duration_sec=fields.PROFILER_MIN_DURATION_SEC,
        profiler_capture_step=fields.PROFILER_CAPTURE_STEP,
    )


def _optimizer(fields: Fields) -> Any:
    common = {
        "learning_rate": fields.learning_rate(),
        "lr_schedule": _schedule(fields),
        "weight_decay": fields.WEIGHT_DECAY,
        "clip_gradient_norm_to_value": fields.CLIP_GRADIENT_NORM_TO_VALUE,
        "ema_decay": fields.EMA_DECAY or 0.0,
    }
    if fields.OPTIMIZER == "adam":
        return optimizers.Adam.HParams(
            beta1=fields.ADAM_BETA1,
            beta2=fields.ADAM_BETA2,
            epsilon=fields.ADAM_EPSILON,
            clip_threshold=0.0 if fields.ADAM_CLIP_THRESHOLD is None else fields.ADAM_CLIP_THRESHOLD,
            **common,
        )
    if fields.OPTIMIZER == "sharded_adafactor":
        return ShardedAdafactor.HParams(
            decay_method="adam", beta1=fields.ADAM_BETA1, decay_adam=fields.ADAFACTOR_DECAY, **common
        )
    plain = {"adafactor": optimizers.Adafactor, "lion": optimizers.Lion, "sgd": optimizers.Sgd}
    return plain[fields.OPTIMIZER].HParams(**common)


def _schedule(fields: Fields) -> Any:
    if fields.LR_SCHEDULE == "constant":
        return schedules.Constant.HParams()
    if fields.LR_SCHEDULE == "linear_rampup_exponential_decay":
        return ramps.LinearRampupExponentialDecay.HParams(
            warmup_steps=fields.LR_LRED_WARMUP,
            decay_start=fields.LR_LRED_DECAY_START,
            decay_end=fields.LR_LRED_DECAY_END,
            min_ratio=fields.LR_LRED_MIN_RATIO,
            max=1.0,
        )
    warmup, start, end = fields.cosine_steps()
    return ramps.LinearRampupCosineDecay.HParams(
        warmup_steps=warmup, decay_start=start, decay_end=end, min_ratio=fields.LR_COS_MIN_RATIO, max=1.0
    )
