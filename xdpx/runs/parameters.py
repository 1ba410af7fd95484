"""Every key of `x-train` that belongs to no registered class, by the heading under which it is printed."""

from __future__ import annotations

from typing import Any, Literal

from xdpx.config import parameters as declare
from xdpx.config.parameters import param
from xdpx.config.spmd_keys import mesh_conflicts
from xdpx.reports.references import format_conflicts, reference_conflicts
from xdpx.utils.metric_names import is_higher_better


class TrainerParameters(declare.Parameters):
    """What is trained on, for how long, and where the results go."""

    data_dir: str = param(doc="Folder that x-prepro made.", path="directory", group="trainer")
    save_dir: str = param(
        doc="Folder for the results; created if it does not exist.", path="new_directory", unique=True, group="trainer"
    )
    overwrite: bool = param(False, doc="Replace the run that is in save_dir.", group="trainer")
    auto_suffix: bool = param(
        False,
        doc="If save_dir is not empty, use save_dir-1, -2, ... instead.",
        when=("overwrite", "is", False),
        group="trainer",
    )
    resume: bool | Literal["auto"] = param(
        False, doc="Resume the run in save_dir; auto: start it, or resume it if it has started before.", group="trainer"
    )
    max_epoch: int | None = param(
        None,
        gt=0,
        doc="Maximum number of epochs (lazy_load: of shards); the smaller of max_epoch and max_update counts.",
        group="trainer",
    )
    max_update: int | None = param(None, gt=0, doc="Maximum number of updates.", relative="inverse", group="trainer")
    batch_size: int = param(gt=0, doc="Samples per batch, over all devices.", group="trainer")
    update_freq: int = param(1, gt=0, doc="Batches per update (gradient accumulation).", group="trainer")
    force_sync: bool = param(
        False, doc="Accepted without effect: processes exchange gradients once per update.",
        when=("update_freq", ">", 1), group="trainer",
    )  # fmt: skip
    auto_ga: bool = param(
        False,
        doc="When memory runs out, cut each batch into 2, 4, ... 64 parts and accumulate their gradients: the same "
        "update, but for the masks of dropout.",
        group="trainer",
    )
    max_loss: float | None = param(
        None,
        doc="Stop when the logged loss is above this three times in a row; null: 200, but no limit for mse, whose unit "
        "is that of the labels squared, and the losses bce, which are sums over labels.",
        group="trainer",
    )
    min_lr: float = param(0.0, ge=0, doc="Stop when the learning rate has fallen to this.", group="trainer")
    callbacks: list[str | dict[str, dict[str, Any]]] = param(
        [],
        doc="Callbacks, as in the Trainer: registered names, module:Class, or {name: {argument: value}}.",
        group="trainer",
    )
    report_to: str | list[str] = param(
        "none",
        doc="Trackers, as in the Trainer: tensorboard, jsonl, wandb, ...; all: those that are installed.",
        group="trainer",
    )
    seed: int | None = param(
        1, ge=0, lt=2**63, doc="Seed of all randomness; null draws one and logs it.", group="trainer"
    )
    cache_train_file: bool = param(
        True,
        doc="Accepted without effect: remote data always go through the read cache, whose size is limited.",
        group="trainer",
    )
    lazy_load: bool = param(
        False, doc="Train on one shard at a time, in order; x-prepro may still be writing later ones.", group="trainer"
    )
    data_size: dict[str, int] = param({}, doc="Samples in each split, from meta.hjson.", group="trainer")
    ema_decay: float = param(
        1.0,
        gt=0,
        le=1,
        doc="Decay of the moving average of weights, which is scored and saved; 1: no average.",
        group="trainer",
    )
    swa_start: int | float | None = param(
        None,
        gt=0,
        doc="Update (int), or share of all (float), from which on weights are averaged evenly, scored and saved; null: "
        "never.",
        group="trainer",
    )
    swa_interval: int = param(
        1, gt=0, doc="Updates between averaged weights.", when=("swa_start", "is not", None), group="trainer"
    )
    train_subset: str | list[str] = param("train", doc="Splits to train on: names or patterns.", group="trainer")
    exclude_valid_from_train: bool = param(
        False, doc="Leave valid_subset out of train_subset, for cross-validation.", group="trainer"
    )
    train_steps: int | float | None = param(
        None,
        gt=0,
        doc="Stop after so many updates from now, or this share of all (float); the schedule is not affected.",
        group="trainer",
    )
    task: str = param("default", doc="How model and loss are trained.", registry="task", group="trainer")
    engine: Literal["pytorch", "spmd"] = param(
        "pytorch", doc="Engine: pytorch; or spmd: JAX, sharded over all local devices.", group="trainer"
    )
    mesh: list[int] | None = param(
        None,
        doc="How many devices share the [rows of a batch, weights and rows, matrices]; one may be -1: the rest. null: "
        "all on the rows.",
        when=("engine", "is", "spmd"),
        group="trainer",
    )
    processor: str = param(doc="How samples become batches, from meta.hjson.", registry="processor", group="trainer")


class LogParameters(declare.Parameters):
    """What is logged and recorded during training."""

    log_interval: int = param(
        10, gt=0, doc="Updates between rows of train.log.tsv.", relative="inverse", group="trainer/log"
    )
    log_file: str | None = param("log.txt", doc="Name of the log file in save_dir; null for none.", group="trainer/log")
    viz_ref_dir: str | list[str] | dict[str, str] | None = param(
        None, doc="Runs to plot with this one: a folder, a list, or label: folder; at most 4.", group="trainer/log"
    )
    plots: bool = param(True, doc="Draw figures into plots; without them, x-viz draws them later.", group="trainer/log")
    profile: bool = param(
        False,
        doc="Trace five updates into save_dir/profile, after the first five: a trace, a table, figures.",
        group="trainer/log",
    )
    figext: str = param(
        "png", doc="Format of the figures: png, svg, pdf or another that matplotlib writes.", group="trainer/log"
    )


class EvaluationParameters(declare.Parameters):
    """When to evaluate and save, and when to stop early."""

    eval_interval: int = param(
        ge=-1, doc="Updates between evaluations; -1: at the end only.", relative="inverse", group="trainer/evaluation"
    )
    valid_subset: str = param("dev", doc="Split to evaluate on.", group="trainer/evaluation", alters="score")
    max_eval_steps: int | None = param(
        None, gt=0, doc="Maximum number of batches to score; null: all.", group="trainer/evaluation", alters="score"
    )
    exact: bool = param(
        False, doc="Score rows as x-eval and x-pred do with exact, bit-identically.", group="trainer/evaluation"
    )
    major_metric: str = param(
        doc="Metric that selects the best checkpoint.", metric_of="loss", group="trainer/evaluation", alters="score"
    )
    ascending_metric: bool = param(True, doc="Whether higher is better.", group="trainer/evaluation", alters="score")
    tolerance: int | None = param(
        None, gt=0, doc="Stop after so many updates without a better score; null: never.", relative="inverse",
        group="trainer/evaluation",
    )  # fmt: skip
    min_steps: int = param(
        1,
        ge=0,
        doc="Minimum number of updates before tolerance can stop.",
        relative="inverse",
        group="trainer/evaluation",
    )
    eval_interval_warmup: int = param(
        0,
        ge=0,
        doc="Number of updates at the beginning with rarer evaluations, during which tolerance does not stop.",
        relative="inverse",
        group="trainer/evaluation",
    )
    eval_interval_warmup_mutiplier: int = param(
        6,
        gt=0,
        doc="How many times rarer they are then; the misspelling is kept for old configs.",
        when=("eval_interval_warmup", ">", 0),
        group="trainer/evaluation",
    )
    eval_interval_warmup_multiplier: int | None = param(
        None, gt=0, doc="The same, spelt correctly; null: use the other.",
        when=("eval_interval_warmup", ">", 0), group="trainer/evaluation",
    )  # fmt: skip
    inspect_gradient: bool = param(
        False,
        doc="Record the gradient of every weight with each log row: plots/gradients has figures and a history, and "
        "the log says where gradients vanish, explode or are dead.",
        group="trainer/evaluation",
    )
    save: bool = param(True, doc="Save checkpoints.", group="trainer/evaluation")
    save_best_only: bool = param(
        False,
        doc="Only keep the weights of the best evaluation.",
        when=("save", "is", True),
        group="trainer/evaluation",
    )
    save_last_only: bool = param(
        False, doc="Keep the weights of the newest evaluation only; with save_best_only: of the best and the newest.",
        when=("save", "is", True), group="trainer/evaluation",
    )  # fmt: skip
    save_above_score: float | None = param(
        None,
        doc="Only keep weights if major_metric is better than this.",
        when=("save", "is", True),
        group="trainer/evaluation",
    )
    save_full_checkpoint: bool = param(
        False,
        doc="Save the full state, which a resume needs, at each evaluation.",
        when=("save", "is", True),
        group="trainer/evaluation",
    )
    save_interval: int | None = param(
        None, gt=0, doc="Also save the full state every so many updates.",
        when=("save", "is", True), group="trainer/evaluation",
    )  # fmt: skip
    save_in_background: bool = param(
        False, doc="Write full states in the background; training only waits until they are copied.",
        when=("save", "is", True), group="trainer/evaluation",
    )  # fmt: skip
    memory_copy_interval: int = param(
        0, ge=0, group="trainer/evaluation", when=("save", "is", True),
        doc="Updates between copies of the state in each machine's shared memory, from which a restart continues if "
        "nothing newer was saved; 0: no copies.",
    )  # fmt: skip


class OptimizationParameters(declare.Parameters):
    """How weights are updated."""

    learning_rate: float = param(gt=0, doc="Maximum learning rate.", group="optimization")
    clip_norm: float = param(
        5.0,
        ge=0,
        doc="Maximum norm of the gradient over all weights, to which it is clipped; 0: no clipping.",
        group="optimization",
    )
    nonfinite_steps: Literal["raise", "skip", "keep"] = param(
        "raise",
        doc="What to do if the loss or gradient of an update is NaN or infinite: raise ends the training, and nothing "
        "after it is saved; skip leaves it out, which waits for the device at every update; keep applies it. "
        "In fp16 the loss scale handles gradients that overflow.",
        group="optimization",
    )
    optimizer: str = param("adam", doc="Update rule of the weights.", registry="optimizer", group="optimization")
    lr_scheduler: str = param(
        "constant", doc="Schedule of the learning rate.", registry="lr_scheduler", group="optimization"
    )


class DeviceParameters(declare.Parameters):
    """Where and how precisely to compute."""

    cuda: bool | None = param(None, doc="Compute on GPUs; null: if there are any.", group="trainer/distributed")
    nproc: int | None = param(
        None, ge=1, group="trainer/distributed",
        doc="Processes to start on this machine, one per device; null: one per visible GPU, or one.",
    )  # fmt: skip
    max_restarts: int = param(
        3, ge=0, group="trainer/distributed",
        doc="How often the processes of nproc are restarted if one was killed, froze or hung; they continue from the "
        "newest complete state. Not with auto_suffix. 0: the job ends, as with the processes of a launcher.",
    )  # fmt: skip
    hang_seconds: float = param(
        30.0, ge=0, group="trainer/distributed",
        doc="With several processes, seconds after which all end because one is frozen, or because an update takes so "
        "much longer than twice the longest one; stacks of all are in save_dir/stacks. 0: no monitoring.",
    )  # fmt: skip
    device_id: int | Literal["auto"] = param(
        "auto", doc="Index of the only GPU to use; auto: all visible ones.", group="trainer/distributed"
    )
    distributed_world_size: int | Literal["auto"] = param(
        "auto", group="trainer/distributed",
        doc="Total number of processes, if no launcher sets it; alone the same as nproc.",
    )  # fmt: skip
    distributed_rank: int = param(
        0, ge=0, doc="Rank of this process, with distributed_init_method tcp://.", group="trainer/distributed"
    )
    local_rank: int | None = param(
        None, ge=0, group="trainer/distributed",
        doc="Rank of this process, and index of its GPU, on its machine; null: set by the launcher.",
    )  # fmt: skip
    distributed_init_method: str = param(
        "auto", group="trainer/distributed",
        doc="How processes find each other: auto, env://, or tcp://<host of rank 0>:<port>.",
    )  # fmt: skip
    distributed_backend: str = param(
        "nccl", doc="Accepted without effect: nccl between GPUs, gloo between CPUs.", group="trainer/distributed"
    )
    ddp_backend: Literal["no_c10d", "c10d"] = param(
        "no_c10d", doc="Accepted without effect: gradients are summed in pieces, once per update.",
        group="trainer/distributed",
    )  # fmt: skip
    bucket_cap_mb: int = param(
        25, gt=0, doc="Accepted without effect: the engine decides how much is summed at once.",
        group="trainer/distributed",
    )  # fmt: skip
    strategy: Literal["ddp", "fsdp", "deepspeed"] = param(
        "ddp", group="trainer/distributed",
        doc="What each process keeps: ddp: all weights; fsdp: a share of weights, gradients and optimizer state, which "
        "are gathered layer by layer; deepspeed: as deepspeed_zero_stage says.",
    )  # fmt: skip
    use_bmuf: bool = param(
        False, doc="Let processes train by themselves, and filter what they learned into one model block by block.",
        group="trainer/distributed",
    )  # fmt: skip
    block_lr: float = param(
        1.0, gt=0, doc="Learning rate of blocks.", when=("use_bmuf", "is", True), group="trainer/distributed"
    )
    block_momentum: float = param(
        0.875, ge=0, lt=1, doc="Momentum of blocks; 0 averages weights.", when=("use_bmuf", "is", True),
        group="trainer/distributed",
    )  # fmt: skip
    global_sync_iter: int = param(
        50, gt=0, doc="Updates per block.", when=("use_bmuf", "is", True), group="trainer/distributed"
    )
    warmup_iterations: int = param(
        500, ge=0, doc="Update at which all go on from the weights of the first process; blocks begin there.",
        when=("use_bmuf", "is", True), group="trainer/distributed",
    )  # fmt: skip
    use_nbm: bool = param(
        False, doc="Begin each block where the momentum leads (Nesterov).", when=("use_bmuf", "is", True),
        group="trainer/distributed",
    )  # fmt: skip
    average_sync: bool = param(
        False, doc="Average the optimizers' states after the warm-up and in checkpoints, instead of starting over.",
        when=("use_bmuf", "is", True), group="trainer/distributed",
    )  # fmt: skip
    empty_cache_freq: int = param(
        0,
        ge=0,
        doc="Accepted without effect: memory of the GPU is kept for the next update.",
        group="trainer/distributed",
    )
    tf32: bool | None = param(
        None, doc="Compute float32 products in TF32 on a GPU: faster, but less precise; null: PyTorch's default.",
        group="trainer/distributed",
    )  # fmt: skip
    deterministic: bool = param(
        False,
        doc="Refuse nondeterministic operations; slower on a GPU.",
        group="trainer/distributed",
    )
    compile: bool = param(
        False, doc="Compile the model with torch.compile, once for batches of every shape.", group="trainer/distributed"
    )
    bf16: bool = param(False, doc="Compute in bfloat16; weights stay float32.", group="trainer/bf16")
    fp16: bool = param(False, doc="Compute in float16, on a GPU; weights stay float32.", group="trainer/fp16")
    fp16_backend: Literal["fairseq", "apex"] = param(
        "fairseq",
        doc="Accepted; both mean torch's own mixed precision with a scaled loss.",
        when=("fp16", "is", True),
        group="trainer/fp16",
    )
    opt_level: Literal["O0", "O1", "O2", "O3"] = param(
        "O1",
        doc="Accepted without effect: autocast chooses the precision of each operation.",
        when=("fp16_backend", "is", "apex"),
        group="trainer/fp16",
    )
    min_loss_scale: float = param(
        0.1,
        gt=0,
        doc="Stop when overflows bring the loss scale down to this.",
        when=("fp16", "is", True),
        group="trainer/fp16",
    )
    memory_efficient_fp16: bool = param(
        False, doc="Accepted without effect: weights stay float32.", when=("fp16_backend", "is", "fairseq"),
        group="trainer/fp16",
    )  # fmt: skip
    fp16_init_scale: int = param(
        128, gt=0, doc="Initial loss scale.", when=("fp16_backend", "is", "fairseq"), group="trainer/fp16"
    )
    fp16_scale_tolerance: float = param(
        0.0, ge=0, le=1, doc="Share of the updates that may overflow before the loss scale is halved.",
        when=("fp16_backend", "is", "fairseq"), group="trainer/fp16",
    )  # fmt: skip
    threshold_loss_scale: int | None = param(
        None, gt=0, doc="Minimum loss scale.",
        when=("fp16_backend", "is", "fairseq"), group="trainer/fp16",
    )  # fmt: skip
    deepspeed_save_dir: str | None = param(
        None, doc="Accepted without effect: checkpoints are complete, and are in save_dir.",
        when=("strategy", "is", "deepspeed"), group="deepspeed",
    )  # fmt: skip
    deepspeed_zero_stage: int = param(
        0, ge=0, le=3, when=("strategy", "is", "deepspeed"), group="deepspeed",
        doc="What processes share out: 0: nothing; 1: optimizer state; 2: gradients, too, after each batch; 3: "
        "weights, too, also between the forward and the backward pass.",
    )  # fmt: skip
    deepspeed_bf16: bool = param(
        False, doc="The same as bf16.", when=("strategy", "is", "deepspeed"), group="deepspeed"
    )
    deepspeed_fp16: bool = param(
        False, doc="The same as fp16, with the default loss scale.", when=("strategy", "is", "deepspeed"),
        group="deepspeed",
    )  # fmt: skip

    @property
    def precision(self) -> Literal["fp32", "bf16", "fp16"]:
        """The type in which matrix products are computed."""
        if self.fp16 or self.deepspeed_fp16:
            return "fp16"
        return "bf16" if self.bf16 or self.deepspeed_bf16 else "fp32"

    @property
    def shares_weights(self) -> bool:
        """Whether weights, gradients or optimizer states are sharded over several processes."""
        return self.strategy == "fsdp" or (self.strategy == "deepspeed" and self.deepspeed_zero_stage > 0)


class TrainParameters(DeviceParameters, OptimizationParameters, EvaluationParameters, LogParameters, TrainerParameters):
    """All of the above."""

    def conflicts(self) -> list[tuple[str, str]]:
        """Return every rule between these keys that is broken."""
        return [
            *self._about_length(), *self._about_averages(), *self._about_saving(), *self._about_evaluation(),
            *self._about_devices(), *mesh_conflicts(self.mesh),
        ]  # fmt: skip

    def _about_length(self) -> list[tuple[str, str]]:
        found = []
        if self.max_epoch is None and self.max_update is None:
            found.append(("max_epoch", "nothing says when to stop. Set max_epoch or max_update."))
        if isinstance(self.train_steps, float) and self.train_steps > 1:
            found.append(("train_steps", f"is {self.train_steps}. Use an integer, or a share of all steps up to 1.0."))
        return found

    def _about_averages(self) -> list[tuple[str, str]]:
        found = []
        if isinstance(self.swa_start, float) and self.swa_start > 1:
            found.append(
                ("swa_start", f"is {self.swa_start}. Use an update (an integer), or a share of all up to 1.0.")
            )
        if self.swa_start is not None and self.ema_decay < 1:
            found.append(("swa_start", "contradicts ema_decay: both say which average is kept. Remove one of them."))
        return found

    def _about_saving(self) -> list[tuple[str, str]]:
        found = []
        if self.resume and self.overwrite:
            found.append(("resume", "contradicts overwrite: one continues the run in save_dir, the other replaces it."))
        if self.resume and self.auto_suffix:
            found.append(("resume", "contradicts auto_suffix: name the save_dir to continue."))
        if self.resume == "auto" and not self.save:
            found.append(("resume", "is auto, but save is false, so there would be nothing to continue from."))
        return [
            *found,
            *reference_conflicts("viz_ref_dir", self.viz_ref_dir),
            *format_conflicts("figext", self.figext),
        ]

    def _about_evaluation(self) -> list[tuple[str, str]]:
        found = []
        if self.eval_interval == 0:
            found.append(
                ("eval_interval", "is 0. Use the number of updates between evaluations, or -1 for the end only.")
            )
        higher = is_higher_better(self.major_metric)
        if higher is not None and higher is not self.ascending_metric:
            said, better, right = ("true", "lower", "false") if self.ascending_metric else ("false", "higher", "true")
            problem = f"is {said}, but a {better} {self.major_metric} is better. Set ascending_metric: {right}."
            found.append(("ascending_metric", problem))
        if self.eval_interval == -1 and self.eval_interval_warmup > 0:
            found.append(("eval_interval_warmup", "has no effect with eval_interval: -1. Remove one of them."))
        spelt, misspelt = self.eval_interval_warmup_multiplier, self.eval_interval_warmup_mutiplier
        if spelt is not None and misspelt not in {spelt, 6}:
            problem = f"is {misspelt}, but eval_interval_warmup_multiplier is {spelt}. Keep one of them."
            found.append(("eval_interval_warmup_mutiplier", problem))
        return found

    def _about_devices(self) -> list[tuple[str, str]]:
        found = []
        if self.use_bmuf and (self.ema_decay < 1 or self.swa_start is not None):
            key = "ema_decay" if self.ema_decay < 1 else "swa_start"
            found.append((key, "contradicts use_bmuf, whose blocks already average weights. Remove one of them."))
        if self.nproc is not None and self.distributed_world_size not in {self.nproc, "auto"}:
            found.append(("nproc", f"contradicts distributed_world_size {self.distributed_world_size}. Remove one."))
        if self.distributed_rank and self.distributed_init_method == "auto":
            problem = f"is {self.distributed_rank}, but nothing says where rank 0 is."
            found.append(("distributed_rank", f"{problem} Set distributed_init_method: tcp://<host>:<port>."))
        if (self.nproc or 1) > 1 and self.device_id != "auto":
            found.append(("device_id", f"names one GPU, but nproc is {self.nproc}. Name them in CUDA_VISIBLE_DEVICES."))
        if self.tf32 and self.cuda is False:
            found.append(("tf32", "needs a GPU, but cuda is false. Leave it out."))
        if self.use_bmuf and self.strategy != "ddp":
            problem = (
                f"is {self.strategy}, which contradicts use_bmuf: processes that train independently need all weights."
            )
            found.append(("strategy", f"{problem} Remove one of them."))
        return [*found, *self._about_precision(), *self._about_exactness()]

    def _about_exactness(self) -> list[tuple[str, str]]:
        others = {
            "engine": (self.engine == "spmd", "is spmd"),
            "compile": (self.compile, "is true"),
            "nproc": ((self.nproc or 1) > 1, f"is {self.nproc}"),
            "bf16": (self.precision != "fp32", "or fp16 is set"),
        }
        problem = "is true, but {} {}: x-pred would not be bit-identical. Remove one of them."
        return [("exact", problem.format(key, how)) for key, (is_so, how) in others.items() if self.exact and is_so]

    def _about_precision(self) -> list[tuple[str, str]]:
        keys = ("fp16", "deepspeed_fp16", "bf16", "deepspeed_bf16")
        half, *others = [key for key in keys if getattr(self, key)] or [""]
        found = [(key, f"contradicts {half}. Choose one of them.") for key in others if key[-4:] != half[-4:]]
        if self.precision == "fp16" and self.cuda is False:
            found.append((half, "needs a GPU, but cuda is false. Use bf16, which CPUs support too."))
        return found
