"""Parameters of losses with rules, and their bases, in a module without torch so that configs can be checked."""

from __future__ import annotations

from typing import ClassVar, Literal

from xdpx.config import parameters as declare
from xdpx.metrics.classes import Average
from xdpx.metrics.named import OF_GRADES


class LossParameters(declare.Parameters):
    """Keys of every loss: what else is to be computed from the predictions of a split."""

    metrics: list[str] = declare.param(
        [],
        doc="More metrics of the held-out data to log, by name, besides those that the loss always returns.",
        metric_of="loss",
    )
    major_metric: str | None = declare.param(None, doc="Metric that selects the best checkpoint; always computed.")
    several_labels: bool = declare.param(False, doc="Whether a row may have several labels, from meta.hjson.")
    loss_unit: Literal["nats", "bits"] = declare.param(
        "nats",
        doc="Unit of likelihood losses in logs and plots. Runs of versions without this key are in bits, and stay so.",
        alters="score",
    )


class RegressionParameters(LossParameters):
    """Keys of `mse`."""

    label_values: list[float] | None = declare.param(
        None, doc="The number that each label stands for, from meta.hjson."
    )

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse labels that are not numbers."""
        if self.label_values is None:
            return [("label_values", "is missing: labels are not numbers. Preprocess with target_type: number.")]
        return []


class EpisodeShape(declare.Parameters):
    """What an episode is made of; the sampler that draws it and the loss that reads it must agree."""

    n_way: int = declare.param(10, ge=2, doc="N: classes of an episode.", alters="score")
    k_shot: int = declare.param(5, ge=1, doc="K: rows of each class that define it.", alters="score")
    q_query: int = declare.param(5, ge=1, doc="Q: number of rows of each class to classify.", alters="score")


class CrossEntropyParameters(LossParameters):
    """Keys of `cross_entropy`: what is trained and how the scores count."""

    negative_classes_in_f1: list[int] = declare.param(
        [], doc="Class numbers left out of precision, recall and F1, such as 'other'.", alters="score"
    )
    predict_threshold: float | None = declare.param(
        None, ge=0, le=1, doc="Probability a class must reach, else the negative class is predicted; null: argmax."
    )
    query_level_f1: bool = declare.param(
        False, doc="Score only the best row of each query; needs data with query ids.", alters="score"
    )
    f1_average: Average | None = declare.param(
        None,
        doc="How classes are averaged in precision, recall, F1; null: macro, or, where rows may have several labels, "
        "micro. Micro of one label per row is the accuracy, unless classes are left out.",
        alters="score",
    )
    use_r_dropout: bool = declare.param(False, doc="R-Drop: two passes with different dropout that must agree.")
    kl_alpha: float = declare.param(
        0.5, ge=0, doc="Weight of the divergence of the two passes.", when=("use_r_dropout", "is", True)
    )
    label_values: list[float] | None = declare.param(
        None,
        doc="The grade that each label is in mrr, ndcg and other metrics of queries, from meta.hjson "
        "(target_type: number); null: its class number.",
        alters="score",
    )
    takes_several_labels: ClassVar[bool] = False
    class_weights: list[float] | None = declare.param(
        None,
        ge=0,
        doc="Factor on the loss of the rows of each class, in the order of the classes; null: 1.",
        alters="loss",
    )
    num_classes: int | None = declare.param(None, gt=0, doc="Number of classes, from meta.hjson.")

    @property
    def average(self) -> Average:
        """How classes are averaged in precision, recall and F1."""
        return self.f1_average or ("micro" if self.several_labels else "macro")

    @property
    def reads_grades(self) -> bool:
        """Whether a score goes by the grades that labels are."""
        return self.query_level_f1 or any(map(OF_GRADES.fullmatch, (*self.metrics, self.major_metric or "")))

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse class numbers out of range, and settings that need another number of classes."""
        found = []
        classes = self.num_classes
        if self.several_labels and not self.takes_several_labels:
            problem = "is true, but this loss is for one label per row. Choose a loss for several, such as bce."
            found.append(("several_labels", problem))
        outside = [index for index in self.negative_classes_in_f1 if index < 0 or (classes and index >= classes)]
        if outside:
            found.append(
                ("negative_classes_in_f1", f"holds {outside}. Use class numbers from 0 to {(classes or 1) - 1}.")
            )
        if classes and classes > 1 and set(self.negative_classes_in_f1) >= set(range(classes)):
            problem = f"holds all {classes} classes, so that none is left to score. Leave out those that count."
            found.append(("negative_classes_in_f1", problem))
        if self.f1_average == "binary" and classes and classes != 2:
            found.append(("f1_average", f"is 'binary' but there are {classes} classes. Use macro, micro or weighted."))
        weights = self.class_weights
        grades = self.label_values if self.reads_grades else None
        for key, numbers in (("class_weights", weights), ("label_values", grades)):
            if numbers is not None and classes and len(numbers) != classes:
                found.append((key, f"holds {len(numbers)} numbers for {classes} classes. Use one for each."))
        if weights is not None and not any(weights):
            found.append(("class_weights", "is 0 for every class, so nothing is learned. Use a positive number."))
        return found


class TaylorParameters(CrossEntropyParameters):
    """Keys of `taylor_ce`."""

    taylor_n: int = declare.param(2, ge=2, doc="Order of the Taylor series of the exponential; even.", alters="loss")

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse an odd order, whose series becomes negative."""
        odd = [("taylor_n", f"is {self.taylor_n}. Use an even number: others give negative probabilities.")]
        return [*super().conflicts(), *(odd if self.taylor_n % 2 else [])]


class BCEParameters(CrossEntropyParameters):
    """Keys of `bce`."""

    takes_several_labels: ClassVar[bool] = True
    predict_threshold: list[float] | None = declare.param(  # type: ignore[assignment]
        None,
        ge=0,
        le=1,
        doc="Probability from which each class is predicted: one number for each but class 0, or, with several "
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
        if self.class_weights and not self.several_labels and self.class_weights[0] not in {0.0, 1.0}:
            problem = f"begins with {self.class_weights[0]}, but class 0 means none and is not learned by itself."
            found.append(("class_weights", f"{problem} Write 1.0 first, or use cross_entropy."))
        return found


class CircleParameters(CrossEntropyParameters):
    """Keys of `circle` and `circle_siamese`."""

    scale: int = declare.param(32, gt=0, doc="Scale: how strongly the hardest rows of a batch dominate.", alters="loss")
    margin: float = declare.param(
        0.25, ge=0, lt=1, doc="Margin: how far from its end of [0, 1] a similarity may stay.", alters="loss"
    )
    predict_threshold: float = declare.param(
        0.5, ge=0, le=1, doc="Similarity from which a row is predicted to be positive."
    )
    ce_weight: float = declare.param(
        0.0, ge=0, doc="Weight of the cross-entropy that is added; 0: none.", alters="loss"
    )

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse more classes than two, and what the loss cannot honour."""
        found = super().conflicts()
        if self.num_classes not in {None, 2}:
            found.append(("num_classes", f"is {self.num_classes}. Use a loss for that, such as cross_entropy."))
        if self.use_r_dropout:
            found.append(NO_R_DROP)
        if self.class_weights is not None and not self.ce_weight:
            problem = "is set, but concerns the cross-entropy, whose ce_weight is 0. Set that, or leave it out."
            found.append(("class_weights", problem))
        return found


NO_R_DROP = ("use_r_dropout", "is not known to this loss. Use cross_entropy, or set it to false.")
NOTHING = ("attention_distill", "is false, and so is everything else that could be imitated. Set one of them to true.")
NO_LABELS = ("class_weights", "is set, but training learns from the teacher alone, not from labels. Leave it out.")
NO_GOLD = ("class_weights", "is set, but concerns the labels, whose gold_loss_lambda is 0. Set that, or leave it out.")
NO_EFFECT = "Accepted without effect, for old configs."


class FromTeacherParameters(declare.Parameters):
    """Keys of every loss that learns from the logits of a teacher; it stands in front of those of the plain loss."""

    distill_temperature: float = declare.param(
        1.0,
        gt=0,
        doc="Temperature: the divisor of the logits of teacher and student; larger gives softer targets.",
        alters="loss",
    )
    gold_loss_lambda: float = declare.param(
        0.0, ge=0, doc="Weight of the loss with the labels; 0: none.", alters="loss"
    )

    def conflicts(self) -> list[tuple[str, str]]:
        """Return faults: settings that this loss does not support."""
        weighs_nothing = getattr(self, "class_weights", None) is not None and not self.gold_loss_lambda
        return [
            *super().conflicts(),
            *([NO_R_DROP] if getattr(self, "use_r_dropout", False) else []),
            *([NO_GOLD] if weighs_nothing else []),
        ]


class TinyBertParameters(LossParameters):
    """Keys of `tinybert`."""

    attention_distill: bool = declare.param(True, doc="Imitate attention scores.", alters="loss")
    hidden_distill: bool = declare.param(True, doc="Imitate embeddings and hidden states.", alters="loss")
    mlm_predict_distill: bool = declare.param(False, doc="Imitate predictions for masked tokens.", alters="loss")
    lm_weight: float = declare.param(1.0, ge=0, doc="Weight of the predictions for masked tokens.", alters="loss")
    nsp_predict_distill: bool = declare.param(False, doc="Imitate predictions for whole texts.", alters="loss")

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse to imitate nothing."""
        wanted = (self.attention_distill, self.hidden_distill, self.mlm_predict_distill, self.nsp_predict_distill)
        return [*super().conflicts(), *([] if any(wanted) else [NOTHING])]


class TinyBertTaskParameters(CrossEntropyParameters):
    """Keys of `tinybert_td`."""

    attention_distill: bool = declare.param(True, doc="Imitate attention scores.", alters="loss")
    hidden_distill: bool = declare.param(True, doc="Imitate embeddings and hidden states.", alters="loss")
    cls_predict_distill: bool = declare.param(True, doc="Imitate the prediction.", alters="loss")
    distill_temperature: float = declare.param(
        1.0,
        gt=0,
        doc="Temperature: the divisor of the logits of teacher and student; larger gives softer targets.",
        alters="loss",
    )
    lm_weight: float = declare.param(1.0, ge=0, doc=NO_EFFECT)
    mlm_predict_distill: bool = declare.param(False, doc=NO_EFFECT)
    nsp_predict_distill: bool = declare.param(False, doc=NO_EFFECT)

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse to imitate nothing, and what the loss cannot honour."""
        nothing = not (self.attention_distill or self.hidden_distill or self.cls_predict_distill)
        weights = [] if self.class_weights is None else [NO_LABELS]
        return [
            *super().conflicts(),
            *([NO_R_DROP] if self.use_r_dropout else []),
            *weights,
            *([NOTHING] if nothing else []),
        ]
