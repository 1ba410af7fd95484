"""What optimizers let a user decide. Apart from the optimizers, so that checking a config needs no torch."""

from __future__ import annotations

from xdpx.config import parameters as declare
from xdpx.optimizers.pytorch.request import pairs

GROUP = "optimization"


def about_betas(betas: list[float]) -> list[tuple[str, str]]:
    """Return what is wrong with betas that are not two numbers in [0, 1)."""
    if len(betas) == 2 and all(0.0 <= beta < 1.0 for beta in betas):
        return []
    return [("adam_betas", f"is {betas}. Use two numbers in [0, 1), e.g. [0.9, 0.999].")]


class MeansParameters(declare.Parameters):
    """Keys of every rule that keeps running means of the gradient and of its square."""

    learning_rate: float = declare.param(
        1e-3, gt=0, doc="Highest learning rate; the schedule multiplies it by at most 1.", group=GROUP
    )
    adam_betas: list[float] = declare.param(
        [0.9, 0.999], doc="Decay of the running means of the gradient and of its square.", group=GROUP
    )
    adam_eps: float = declare.param(1e-6, gt=0, doc="Added to the root of the mean square.", group=GROUP)

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse betas that are not two numbers in [0, 1)."""
        return about_betas(self.adam_betas)


class AdamParameters(MeansParameters):
    """Keys shared by `adam` and `lamb`."""

    weight_decay: float = declare.param(
        0.0, ge=0, doc="Share of each weight taken off per update, times the learning rate (decoupled).", group=GROUP
    )


class PairParameters(declare.Parameters):
    """Keys of `pair`; those of its two optimizers begin with major_ and second_."""

    learning_rate: float = declare.param(
        1e-3, gt=0, doc="Highest learning rate of the major optimizer; the schedule multiplies it.", group=GROUP
    )
    major_optimizer: str = declare.param(
        "adam", doc="What steps all weights but those of second_groups.", registry="optimizer", group=GROUP
    )
    second_optimizer: str = declare.param(
        "adam", doc="What steps the weights of second_groups.", registry="optimizer", group=GROUP
    )
    second_learning_rate: float = declare.param(
        gt=0, doc="Highest learning rate of the second optimizer.", relative="direct", group=GROUP
    )
    major_learning_rate: float = declare.param(1e-3, gt=0, doc="Has no effect: write learning_rate.", group=GROUP)
    second_groups: list[str] = declare.param(
        ["memory"],
        doc="Which weights the second optimizer steps: groups of the model whose names begin so (memory, embeddings, "
        "layer 3, top).",
        group=GROUP,
    )
    follow_lr_schedule: bool = declare.param(
        False, doc="Let the schedule move the second learning rate, too; else it stays.", group=GROUP
    )

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse a pair or what switches weights within a pair, and a second word for the learning rate."""
        found = [
            (key, f"is '{getattr(self, key)}'. Use another one: adam, lamb or sparse_adam.")
            for key in ("major_optimizer", "second_optimizer")
            if getattr(self, key) == "pair" or getattr(self, key).startswith("schedule_free")
        ]
        if self.major_learning_rate not in {1e-3, self.learning_rate}:
            found.append(("major_learning_rate", "has no effect. Write learning_rate instead."))
        return found


class NamedParameters(declare.Parameters):
    """Keys of every optimizer that the Trainer knows, too (`optim`)."""

    learning_rate: float = declare.param(
        1e-3, gt=0, doc="Highest learning rate; the schedule multiplies it by at most 1.", group=GROUP
    )
    weight_decay: float = declare.param(
        0.0,
        ge=0,
        doc="Weight decay of those groups of the model that do decay, as the optimizer means it.",
        group=GROUP,
    )
    optim_args: str | None = declare.param(
        None, doc="More settings of the optimizer as key=value pairs with commas, e.g. 'momentum=0.9'.", group=GROUP
    )

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse settings that are no pairs."""
        try:
            pairs(self.optim_args)
        except ValueError as error:
            return [("optim_args", str(error).partition(": ")[2])]
        return []


class NamedAdamParameters(NamedParameters):
    """Keys of those that keep running means as Adam does."""

    adam_betas: list[float] = declare.param(
        [0.9, 0.999], doc="Decay of the running means of the gradient and of its square.", group=GROUP
    )
    adam_eps: float = declare.param(1e-8, gt=0, doc="Added to the root of the mean square.", group=GROUP)

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse betas that are not two numbers in [0, 1)."""
        return [*super().conflicts(), *about_betas(self.adam_betas)]


class LowRankParameters(NamedParameters):
    """Keys of those that project the gradients of chosen layers onto few dimensions."""

    optim_target_modules: str | list[str] = declare.param(
        doc="Linear layers whose gradients are projected: parts of names, a regular expression, or all-linear.",
        group=GROUP,
    )


class LowRankAdamParameters(LowRankParameters, NamedAdamParameters):
    """Keys of those that do so for Adam."""


class LomoParameters(declare.Parameters):
    """Keys of LOMO, whose steps are taken within the backward pass of the only batch of an update."""

    learning_rate: float = declare.param(
        1e-3, gt=0, doc="Highest learning rate; the schedule multiplies it by at most 1.", group=GROUP
    )
    update_freq: int = declare.param(1, gt=0, doc="Batches per update of the weights.", group="trainer")

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse to accumulate."""
        problem = f"is {self.update_freq}, but LOMO steps within each backward pass. Set it to 1."
        return [("update_freq", problem)] if self.update_freq > 1 else []


class AdaLomoParameters(declare.Parameters):
    """None: x-train cannot use AdaLomo."""

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse to be used by x-train."""
        problem = "keeps its means outside of its state_dict, so a resumed run would not be the undisturbed one. "
        return [("optimizer", f"{problem}Use lomo, or adafactor.")]


class LayerwiseParameters(declare.Parameters):
    """None: x-train cannot use optimizers that step layer by layer."""

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse to be used by x-train."""
        return [("optimizer", f"steps each layer within the backward pass{NOT_DIVIDED}")]


NOT_DIVIDED = (
    ", but x-train divides by the count of the whole update, clips, and looks for what is not finite before a step. "
    "Use one without _layerwise, or adafactor, whose state is small; or the Trainer, which has this one."
)


class ScheduleFreeParameters(NamedAdamParameters):
    """Keys of those that average the weights in place of a schedule."""

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse a first beta of 0, by which the average is divided."""
        zero = self.adam_betas[:1] == [0.0]
        problem = "begins with 0, but weights are trained between their average and the last step. Use 0.9, say."
        return [*super().conflicts(), *([("adam_betas", problem)] if zero else [])]
