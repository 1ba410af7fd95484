"""What the adversarial tasks let a user decide. No torch here, so that a config is checked before torch is imported."""

from __future__ import annotations

from typing import Literal

from xdpx.config import parameters as declare

GROUP = "task"

Norm = Literal["l2", "linf"]


class NoiseParameters(declare.Parameters):
    """Keys that every task with noise on the embeddings understands."""

    norm_method: Norm = declare.param("l2", doc="How the noise on a text is measured: l2 or linf.", group=GROUP)
    no_sync_dp: bool = declare.param(
        False, doc="Draw new dropout in every pass; false: the same features are dropped in all.", group=GROUP
    )
    adv_begin_iter: int = declare.param(
        -1, ge=-1, doc="Train without noise up to this update; -1: noise from the first.", group=GROUP
    )


class FreeLBParameters(NoiseParameters):
    """Keys of `freelb`."""

    adv_lr: float = declare.param(0.2, ge=0, doc="How far each step of ascent moves the noise.", group=GROUP)
    adv_steps: int = declare.param(
        2, ge=1, doc="Passes over each batch, of which all but one move the noise.", group=GROUP
    )
    rand_init_mag: float = declare.param(
        0.32, ge=0, doc="Size of the random noise that the first pass begins with; 0: none.", group=GROUP
    )
    max_norm: float = declare.param(0.7, ge=0, doc="Largest norm of the noise on a text; 0: no limit.", group=GROUP)
    grad_square: bool = declare.param(
        False,
        doc="Climb along the square of each entry of the gradient, with its sign: the step is as long, and goes more "
        "into the few features that matter most.",
        group=GROUP,
    )
    recompute_emb: bool = declare.param(
        False, doc="Compute anew in every pass what lies below the noise, with its own dropout.", group=GROUP
    )
    orig_loss_proportion: float = declare.param(
        0.0, ge=0, le=1, doc="Share of the loss that is taken without noise, in a pass of its own.", group=GROUP
    )


class FGMParameters(NoiseParameters):
    """Keys of `fgm`."""

    adv_lr: float = declare.param(1.0, ge=0, doc="Norm of the noise on a text.", group=GROUP)


class PGDParameters(NoiseParameters):
    """Keys of `pgd`."""

    adv_lr: float = declare.param(0.3, ge=0, doc="How far each step of ascent moves the noise.", group=GROUP)
    adv_steps: int = declare.param(3, ge=1, doc="Steps of ascent.", group=GROUP)
    rand_init_mag: float = declare.param(
        0.0, ge=0, doc="Size of the random noise that the ascent begins with; 0: none.", group=GROUP
    )
    max_norm: float = declare.param(1.0, ge=0, doc="Largest norm of the noise on a text; 0: no limit.", group=GROUP)


class SmartParameters(NoiseParameters):
    """Keys of `smart`."""

    norm_method: Norm = declare.param("linf", doc="How the noise on a text is measured: l2 or linf.", group=GROUP)

    adv_lr: float = declare.param(1e-3, ge=0, doc="How far each step of ascent moves the noise.", group=GROUP)
    adv_steps: int = declare.param(1, ge=1, doc="Steps of ascent.", group=GROUP)
    rand_init_mag: float = declare.param(
        1e-5, gt=0, doc="Spread of the random noise that the ascent begins with.", group=GROUP
    )
    max_norm: float = declare.param(1e-5, gt=0, doc="Largest norm of the noise on a text.", group=GROUP)
    smoothness_weight: float = declare.param(
        1.0, ge=0, doc="Weight of the disagreement with the noisy prediction.", group=GROUP
    )
