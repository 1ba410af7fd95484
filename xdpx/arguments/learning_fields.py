"""Arguments that decide what is learned: duration, learning rate, optimizer, precision, and how a step is computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from xdpx.arguments.declaring import BARE_FLAG, option
from xdpx.arguments.enums import OptimizerNames, SchedulerType


@dataclass
class LearningFields:
    """What is learned, for how long, and by which arithmetic."""

    # ---- where to, how long
    output_dir: str | None = option(None, "Folder for checkpoints and results; trainer_output when none is named.")
    per_device_train_batch_size: int = option(8, "Samples per device in one training batch.")
    num_train_epochs: float = option(3.0, "Passes over the training data; a fraction trains a share of the last one.")
    max_steps: int = option(
        -1, "Updates to train for, instead of num_train_epochs; needed where the data set has no length."
    )

    # ---- learning rate
    learning_rate: float = option(5e-5, "Peak learning rate.")
    lr_scheduler_type: SchedulerType | str = option("linear", "Learning rate schedule.")
    lr_scheduler_kwargs: dict[str, Any] | str | None = option(None, "More arguments of the schedule, as JSON.")
    warmup_steps: float = option(0, "Updates of linear warm-up; below 1: their share of all updates.")

    # ---- optimizer
    optim: OptimizerNames | str = option("adamw_torch_fused", "Optimizer.")
    optim_args: str | None = option(None, "More arguments of the optimizer: 'name=value,name=value'.")
    weight_decay: float = option(0.0, "Decoupled weight decay; biases and norms are spared.")
    adam_beta1: float = option(0.9, "Decay of Adam's first moment.")
    adam_beta2: float = option(0.999, "Decay of Adam's second moment.")
    adam_epsilon: float = option(1e-8, "What Adam adds to the denominator.")
    optim_target_modules: None | str | list[str] = option(None, "Modules that GaLore and APOLLO work on.")

    # ---- gradient and loss
    gradient_accumulation_steps: int = option(1, "Batches whose gradients make one update.")
    average_tokens_across_devices: bool = option(
        True, "Divide the loss by the target tokens of all devices together, so that it is their true mean."
    )
    max_grad_norm: float = option(1.0, "Clip the norm of the gradient to this; 0 does not clip.")
    label_smoothing_factor: float = option(0.0, "Share of probability that label smoothing spreads over all classes.")

    # ---- precision
    bf16: bool = option(False, "Compute in bfloat16 where that is safe; weights stay in float32.")
    fp16: bool = option(False, "Compute in float16 where that is safe, with a loss scale; weights stay in float32.")
    bf16_full_eval: bool = option(False, "Evaluate with all weights in bfloat16.")
    fp16_full_eval: bool = option(False, "Evaluate with all weights in float16.")
    tf32: bool | None = option(None, "Whether float32 products may use TF32; unset leaves it to PyTorch.")

    # ---- memory for time
    activation_checkpointing: bool | None = option(
        None, "Forget activations and compute them again when going back: less memory, about a fifth slower.",
        **BARE_FLAG,
    )  # fmt: skip
    activation_checkpointing_kwargs: dict[str, Any] | str | None = option(
        None, "every_n_layers, offload, and what torch.utils.checkpoint takes, as JSON."
    )
    gradient_checkpointing: bool | None = option(None, "Earlier name of activation_checkpointing.", **BARE_FLAG)
    gradient_checkpointing_kwargs: dict[str, Any] | str | None = option(
        None, "Earlier name of activation_checkpointing_kwargs."
    )

    # ---- compilation
    torch_compile: bool = option(False, "Compile the model with torch.compile.")
    torch_compile_backend: str | None = option(None, "Backend of torch.compile; turns it on.")
    torch_compile_mode: str | None = option(None, "Mode of torch.compile; turns it on.")
    use_liger_kernel: bool = option(False, "Patch the model with Liger kernels.")
    liger_kernel_config: dict[str, bool] | None = option(None, "Which Liger kernels to use, as JSON.")

    # ---- more
    use_cache: bool = option(False, "Let the model keep keys and values of earlier tokens; of use to few methods.")
    neftune_noise_alpha: float | None = option(None, "Strength of NEFTune noise on the embeddings; 5 to 15 is usual.")
    torch_empty_cache_steps: int | None = option(None, "Updates between releases of the device's cached memory.")
    auto_find_batch_size: bool = option(False, "Begin again with a smaller training batch when memory runs out.")
