"""What the Adam family lets a user decide."""

from __future__ import annotations

from xdpx.config import parameters as declare

GROUP = "optimization"


class AdamParameters(declare.Parameters):
    """Keys shared by `adam` and `lamb`."""

    learning_rate: float = declare.param(
        1e-3, gt=0, doc="Highest learning rate; the schedule multiplies it by at most 1.", group=GROUP
    )
    adam_betas: list[float] = declare.param(
        [0.9, 0.999], doc="Decay of the running means of the gradient and of its square.", group=GROUP
    )
    adam_eps: float = declare.param(1e-6, gt=0, doc="Added to the root of the mean square.", group=GROUP)
    weight_decay: float = declare.param(
        0.0, ge=0, doc="Share of each weight taken off per update, times the learning rate (decoupled).", group=GROUP
    )

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse betas that are not two numbers in [0, 1)."""
        if len(self.adam_betas) == 2 and all(0.0 <= beta < 1.0 for beta in self.adam_betas):
            return []
        return [("adam_betas", f"is {self.adam_betas}. Use two numbers in [0, 1), e.g. [0.9, 0.999].")]
