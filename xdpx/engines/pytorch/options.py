"""How the PyTorch engine computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from xdpx.config.faults import THIS_RUN, ConfigError, Fault

Precision = Literal["fp32", "bf16", "fp16"]
AUTOCAST: dict[str, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}


MIN_LOSS_SCALE = 0.1
"""A smaller loss scale of fp16 ends a training, where its config says nothing else: it would only shrink gradients."""


@dataclass(frozen=True)
class AveragingOptions:
    """Which average of the weights is kept: an exponential one (EMA), an even one (SWA), or none.

    Attributes:
        ema_decay: share of the averaged weights that stays at each update; 1 keeps no average.
        swa_start: update at which stochastic weight averaging begins; None never begins.
        swa_interval: updates from one averaged point to the next.
    """

    ema_decay: float = 1.0
    swa_start: int | None = None
    swa_interval: int = 1

    @property
    def averages(self) -> bool:
        """Whether averaged weights are kept, which are scored and saved."""
        return self.ema_decay < 1.0 or self.swa_start is not None

    @property
    def swa(self) -> tuple[int | None, int]:
        """What decides which weights SWA takes the mean of: its start and its interval."""
        return self.swa_start, self.swa_interval

    def has_begun(self, num_updates: int) -> bool:
        """Tell whether there is an average after so many updates."""
        return self.averages and num_updates >= (self.swa_start or 0)

    def share_of_new(self, num_update: int) -> float | None:
        """Tell by which share the averaged weights move towards those of update `num_update`; None: they stay.

        EMA moves by 1 - ema_decay at each update. SWA takes the weights over at its start, and from then on keeps the
        even mean of those and of those after every `swa_interval` further updates: a function of the number alone, so
        that a resumed run needs no count.

        Source: Izmailov et al., "Averaging Weights Leads to Wider Optima and Better Generalization", UAI 2018,
        algorithm 1.
        """
        if self.swa_start is None:
            return 1.0 - self.ema_decay
        since = num_update - self.swa_start
        if since < 0:
            return None
        points, between = divmod(since, self.swa_interval)
        return None if between else 1.0 / (points + 1)


@dataclass(frozen=True)
class EngineOptions(AveragingOptions):
    """Settings of the engine; those of `AveragingOptions` too.

    Attributes:
        device: "auto" (a GPU when there is one), or what `torch.device` takes.
        precision: type that matrix products are computed in; weights are always float32.
        clip_norm: gradients are scaled down to this norm; 0 leaves them.
        nonfinite_steps: what becomes of an update whose gradient is NaN or infinite: "raise" and "skip" leave it out,
            "keep" takes it. With "skip" the loss counts, too, and the host waits for the device at every update to
            tell. Under fp16 the loss scale decides about gradients.
        seed: with the number of the update, decides all randomness of an update.
        init_scale: first loss scale of fp16.
        scale_window: updates without overflow after which the loss scale doubles.
        scale_tolerance: share of the updates that may overflow before the loss scale is halved.
        lowest_scale: the loss scale is never halved to less than this.
        min_loss_scale: a smaller loss scale ends the training.
        tf32: whether products of float32 may be computed in TF32; None leaves PyTorch as it is set.
        deterministic: refuse operations that add up in any order.
        exact: give each row the same bits whatever rows it is scored with.
        compile: the backend of torch.compile that a model is compiled by, once for all shapes; None: it is not.
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
    """Turn a device's name into a device that is there.

    Raises:
        ConfigError: there is no such device on this machine.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        fault = Fault("device", f"is '{name}', which this machine does not have: {reason}", "Use auto, cpu or cuda.")
        if name.startswith("cuda"):  # which is how the key `cuda` of a config arrives here
            problem = f"is true, but this machine has no device '{name}': {reason}"
            fault = Fault("cuda", problem, "Set cuda: false, or leave it out to use what there is.")
        raise ConfigError(THIS_RUN, [fault]) from error
    return device
