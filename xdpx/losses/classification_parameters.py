"""What the losses over classes let a user decide. No torch here: a config is checked before torch is imported."""

from __future__ import annotations

from typing import ClassVar

from xdpx.config import parameters as declare
from xdpx.losses.parameters import CrossEntropyParameters


class LabelSmoothParameters(CrossEntropyParameters):
    """Keys of `label_smooth_ce`."""

    smoothing: float = declare.param(0.1, ge=0, lt=1, doc="Share of the probability that all classes get alike.")


class TaylorParameters(CrossEntropyParameters):
    """Keys of `taylor_ce`."""

    taylor_n: int = declare.param(2, ge=2, doc="Order of the series that stands for the exponential; even.")

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse an odd order, whose series becomes negative."""
        odd = [("taylor_n", f"is {self.taylor_n}. Use an even number: others give negative probabilities.")]
        return [*super().conflicts(), *(odd if self.taylor_n % 2 else [])]


class FocalParameters(CrossEntropyParameters):
    """Keys of `focal`."""

    focal_gamma: float = declare.param(2.0, ge=0, doc="How much rows that are right already count less; 0: not at all.")


class BCEParameters(CrossEntropyParameters):
    """Keys of `bce`."""

    takes_several_labels: ClassVar[bool] = True
    predict_threshold: list[float] | None = declare.param(  # type: ignore[assignment]
        None,
        ge=0,
        le=1,
        doc="Probability from which on each class is predicted: one number for each but class 0, or, with several "
        "labels per row, for each; null: 0.5.",
    )

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse thresholds that are not one for each class."""
        found, classes, cuts = super().conflicts(), self.num_classes, self.predict_threshold
        wanted = (classes or 0) - (not self.several_labels)
        if cuts is not None and classes and len(cuts) != wanted:
            problem = f"holds {len(cuts)} numbers for {classes} classes. Use {wanted}"
            reason = "one for each." if self.several_labels else "one for each but class 0, which means none."
            found.append(("predict_threshold", f"{problem}: {reason}"))
        if self.several_labels and self.query_level_f1:
            found.append(("query_level_f1", "needs one label per row. Set it to false."))
        return found


class GHMParameters(BCEParameters):
    """Keys of `ghmc`."""

    bins: int = declare.param(10, ge=1, doc="Into how many ranges of difficulty rows are counted.")
    momentum: float = declare.param(0.75, ge=0, lt=1, doc="Share of the counts that stays from batch to batch.")


class CircleParameters(CrossEntropyParameters):
    """Keys of `circle` and `circle_siamese`."""

    scale: int = declare.param(32, gt=0, doc="How sharply the worst rows of a batch are looked at.")
    margin: float = declare.param(0.25, ge=0, lt=1, doc="How far from its end of [0, 1] a similarity may stay.")
    predict_threshold: float = declare.param(
        0.5, ge=0, le=1, doc="Similarity from which on a row is predicted to be positive."
    )
    ce_weight: float = declare.param(0.0, ge=0, doc="Weight of the cross-entropy that is added; 0: none.")

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse more classes than two, and what the loss cannot honour."""
        found = super().conflicts()
        if self.num_classes not in {None, 2}:
            found.append(("num_classes", f"is {self.num_classes}. Use a loss for that, such as cross_entropy."))
        if self.use_r_dropout:
            found.append(("use_r_dropout", "is not known to this loss. Use cross_entropy, or set it to false."))
        return found


class PromptParameters(CrossEntropyParameters):
    """Keys of `bert_prompt_loss`."""

    use_r_dropout: bool = declare.param(True, doc="R-Drop: two passes with different dropout that must agree.")
    lm_weight: float = declare.param(1.0, ge=0, doc="Weight of the right tokens among the whole vocabulary.")
