"""Parameters of the optimizers; in their own module, so that a config can be checked without torch."""

from __future__ import annotations

from xdpx.config import parameters as declare
from xdpx.optimizers.pytorch.request import pairs

GROUP = "optimization"


def about_betas(betas: list[float]) -> list[tuple[str, str]]:
    """Return conflicts: betas that are not two numbers in [0, 1)."""
    if len(betas) == 2 and all(0.0 <= beta < 1.0 for beta in betas):
        return []
    return [("adam_betas", f"is {betas}. Use two numbers in [0, 1), e.g. [0.9, 0.999].")]


class MeansParameters(declare.Parameters):
    """Keys of optimizers with running means of the gradient and of its square."""

    learning_rate: float = declare.param(
        1e-3, gt=0, doc="Maximum learning rate; the schedule multiplies it by at most 1.", group=GROUP
    )
    adam_betas: list[float] = declare.param(
        [0.9, 0.999], doc="Decay of the running means of the gradient and of its square.", group=GROUP
    )
    adam_eps: float = declare.param(1e-6, gt=0, doc="Added to the root of the mean square.", group=GROUP)

    def conflicts(self) -> list[tuple[str, str]]:
        """Return conflicts: betas that are not two numbers in [0, 1)."""
        return about_betas(self.adam_betas)


class AdamParameters(MeansParameters):
    """Keys shared by `adam` and `lamb`."""

    weight_decay: float = declare.param(
        0.0,
        ge=0,
        doc="Decoupled weight decay: share of each weight subtracted per update, times the learning rate.",
        group=GROUP,
    )


class PairParameters(declare.Parameters):
    """Keys of `pair`; those of its two optimizers begin with major_ and second_."""

    learning_rate: float = declare.param(
        1e-3, gt=0, doc="Maximum learning rate of the major optimizer; the schedule multiplies it.", group=GROUP
    )
    major_optimizer: str = declare.param(
        "adam", doc="Optimizer of all weights but those of second_groups.", registry="optimizer", group=GROUP
    )
    second_optimizer: str = declare.param(
        "adam", doc="Optimizer of the weights of second_groups.", registry="optimizer", group=GROUP
    )
    second_learning_rate: float = declare.param(
        gt=0, doc="Maximum learning rate of the second optimizer.", relative="direct", group=GROUP
    )
    major_learning_rate: float = declare.param(1e-3, gt=0, doc="Has no effect: write learning_rate.", group=GROUP)
    second_groups: list[str] = declare.param(
        ["memory"],
        doc="Groups of weights of the second optimizer: prefixes of their names (memory, embeddings, layer 3, top).",
        group=GROUP,
    )
    follow_lr_schedule: bool = declare.param(
        False, doc="Apply the schedule to the second learning rate too; else that is constant.", group=GROUP
    )

    def conflicts(self) -> list[tuple[str, str]]:
        """Return conflicts: a pair or a schedule-free optimizer within the pair, or a use of `major_learning_rate`."""
        found = [
            (key, f"is '{getattr(self, key)}'. Use another one: adam, lamb or sparse_adam.")
            for key in ("major_optimizer", "second_optimizer")
            if getattr(self, key) == "pair" or getattr(self, key).startswith("schedule_free")
        ]
        if self.major_learning_rate not in {1e-3, self.learning_rate}:
            found.append(("major_learning_rate", "has no effect. Write learning_rate instead."))
        return found


class NamedParameters(declare.Parameters):
    """Keys of optimizers that the Trainer has too (`optim`)."""

    learning_rate: float = declare.param(
        1e-3, gt=0, doc="Maximum learning rate; the schedule multiplies it by at most 1.", group=GROUP
    )
    weight_decay: float = declare.param(
        0.0,
        ge=0,
        doc="Weight decay of the groups of weights that have one, as defined by the optimizer.",
        group=GROUP,
    )
    optim_args: str | None = declare.param(
        None, doc="More settings of the optimizer as comma-separated key=value pairs, e.g. 'momentum=0.9'.", group=GROUP
    )

    def conflicts(self) -> list[tuple[str, str]]:
        """Return conflicts: `optim_args` that are not key=value pairs, or that repeat the key weight_decay."""
        try:
            decay = pairs(self.optim_args).get("weight_decay")
        except ValueError as error:
            return [("optim_args", str(error).partition(": ")[2])]
        problem = f"has weight_decay, which is a key of its own. Write weight_decay: {decay} instead."
        return [] if decay is None else [("optim_args", problem)]


class NamedAdamParameters(NamedParameters):
    """Keys of optimizers with running means like those of Adam."""

    adam_betas: list[float] = declare.param(
        [0.9, 0.999], doc="Decay of the running means of the gradient and of its square.", group=GROUP
    )
    adam_eps: float = declare.param(1e-8, gt=0, doc="Added to the root of the mean square.", group=GROUP)

    def conflicts(self) -> list[tuple[str, str]]:
        """Return conflicts: those of the base class, and betas that are not two numbers in [0, 1)."""
        return [*super().conflicts(), *about_betas(self.adam_betas)]


class LowRankParameters(NamedParameters):
    """Keys of optimizers that project the gradients of selected layers to a low rank."""

    optim_target_modules: str | list[str] = declare.param(
        doc="Linear layers whose gradients are projected: parts of names, a regular expression, or all-linear.",
        group=GROUP,
    )


class LowRankAdamParameters(LowRankParameters, NamedAdamParameters):
    """Keys of Adam with such projections."""


class LomoParameters(declare.Parameters):
    """Keys of LOMO, which steps within the backward pass, so that an update has only one batch."""

    learning_rate: float = declare.param(
        1e-3, gt=0, doc="Maximum learning rate; the schedule multiplies it by at most 1.", group=GROUP
    )
    update_freq: int = declare.param(1, gt=0, doc="Batches per update (gradient accumulation).", group="trainer")

    def conflicts(self) -> list[tuple[str, str]]:
        """Return conflicts: gradient accumulation."""
        problem = f"is {self.update_freq}, but LOMO steps within each backward pass. Set it to 1."
        return [("update_freq", problem)] if self.update_freq > 1 else []


class AdaLomoParameters(declare.Parameters):
    """No keys: x-train does not support AdaLomo."""

    def conflicts(self) -> list[tuple[str, str]]:
        """Return conflicts: any use by x-train."""
        problem = "keeps its means outside of its state_dict, so a resumed run would differ from an uninterrupted one. "
        return [("optimizer", f"{problem}Use lomo, or adafactor.")]


class LayerwiseParameters(declare.Parameters):
    """No keys: x-train does not support layerwise optimizers."""

    def conflicts(self) -> list[tuple[str, str]]:
        """Return conflicts: any use by x-train."""
        return [("optimizer", f"steps each layer within the backward pass{NOT_DIVIDED}")]


NOT_DIVIDED = (
    ", but x-train divides by the count of the whole update, clips, and looks for what is not finite before a step. "
    "Use one without _layerwise, or adafactor, whose state is small; or the Trainer, which has this one."
)


class ScheduleFreeParameters(NamedAdamParameters):
    """Keys of optimizers that average the weights in place of a schedule."""

    def conflicts(self) -> list[tuple[str, str]]:
        """Return conflicts: also a first beta of 0, by which the average is divided."""
        zero = self.adam_betas[:1] == [0.0]
        problem = "begins with 0, but weights are trained between their average and the last step. Use e.g. 0.9."
        return [*super().conflicts(), *([("adam_betas", problem)] if zero else [])]
