"""How the PyTorch engine computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from xdpx.config.faults import THIS_RUN, ConfigError, Fault, first_line

Precision = Literal["fp32", "bf16", "fp16"]
AUTOCAST: dict[str, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}


MIN_LOSS_SCALE = 0.1
"""Default of the loss scale of fp16 at which a training ends: smaller ones would only shrink gradients."""


@dataclass(frozen=True)
class AveragingOptions:
    """Which average of the weights is kept: an exponential one (EMA), a uniform one (SWA), or none.

    Attributes:
        ema_decay: weight of the old average at each update; 1 keeps no average.
        swa_start: update at which stochastic weight averaging begins; None never begins.
        swa_interval: updates from one averaged point to the next.
    """

    ema_decay: float = 1.0
    swa_start: int | None = None
    swa_interval: int = 1

    @property
    def averages(self) -> bool:
        """Whether averaged weights are kept, to be scored and saved."""
        return self.ema_decay < 1.0 or self.swa_start is not None

    @property
    def swa(self) -> tuple[int | None, int]:
        """The settings that define SWA: its start and its interval."""
        return self.swa_start, self.swa_interval

    def has_begun(self, num_updates: int) -> bool:
        """Return whether there is an average after `num_updates` updates."""
        return self.averages and num_updates >= (self.swa_start or 0)

    def share_of_new(self, num_update: int, *, skipped: bool = False) -> float | None:
        """Return the share of the weights of update `num_update` in the new average; None leaves the average unchanged.

        For EMA it is 1 - ema_decay at each update; one that was skipped has no new weights, and adds nothing, as on
        JAX. SWA copies the weights at its start, and from then on keeps the uniform mean of those and of the weights
        after every `swa_interval` further updates: the share depends only on the number of the update, so a resumed
        run needs no count.

        Source: Izmailov et al., "Averaging Weights Leads to Wider Optima and Better Generalization", UAI 2018,
        algorithm 1.
        """
        if self.swa_start is None:
            return None if skipped else 1.0 - self.ema_decay
        since = num_update - self.swa_start
        if since < 0:
            return None
        points, between = divmod(since, self.swa_interval)
        return None if between else 1.0 / (points + 1)


@dataclass(frozen=True)
class EngineOptions(AveragingOptions):
    """Settings of the engine, including those of `AveragingOptions`.

    Attributes:
        device: "auto" (a GPU if there is one), or an argument for `torch.device`.
        precision: type that matrix products are computed in; weights are always float32.
        clip_norm: gradients are scaled down to this norm; 0 does not clip.
        nonfinite_steps: what to do with an update whose gradient is NaN or infinite: "raise" and "skip" leave it out,
            "keep" takes it. With "skip" a non-finite loss counts as well, and the host waits for the device at every
            update to check. Under fp16 the loss scale decides about gradients.
        seed: with the number of the update, decides all randomness of an update.
        init_scale: first loss scale of fp16.
        scale_window: updates without overflow after which the loss scale doubles.
        scale_tolerance: fraction of updates that may overflow before the loss scale is halved.
        lowest_scale: the loss scale is never halved below this.
        min_loss_scale: an overflow that brings the loss scale down to this, or below it, ends the training.
        tf32: whether float32 matrix products may use TF32; None leaves PyTorch's setting.
        deterministic: raise for nondeterministic operations.
        exact: score each row with the same bits, whatever rows it is batched with.
        compile: backend of torch.compile, compiled once for all shapes; None does not compile.
    """

    device: str = "auto"
    precision: Precision = "fp32"
    clip_norm: float = 0.0
    nonfinite_steps: Literal["raise", "skip", "keep"] = "raise"
    seed: int = 1
    init_scale: float = 128.0
    scale_window: int = 16384
    scale_tolerance: float = 0.0
    lowest_scale: float = 0.0
    min_loss_scale: float = MIN_LOSS_SCALE
    tf32: bool | None = None
    deterministic: bool = False
    exact: bool = False
    compile: str | None = None


def pick_device(name: str) -> torch.device:
    """Return the device with a name, after checking that it is available.

    Raises:
        ConfigError: there is no such device on this machine.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = first_line(error)
        fault = Fault("device", f"is '{name}', which this machine does not have: {reason}", "Use auto, cpu or cuda.")
        if name.startswith("cuda"):  # which is how the key `cuda` of a config arrives here
            problem = f"is true, but this machine has no device '{name}': {reason}"
            fault = Fault("cuda", problem, "Set cuda: false, or leave it out to use what there is.")
        raise ConfigError(THIS_RUN, [fault]) from error
    return device
