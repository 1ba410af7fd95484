"""What the losses let a user decide. No torch here, so that a config is checked before torch is imported."""

from __future__ import annotations

from typing import ClassVar, Literal

from xdpx.config import parameters as declare

Average = Literal["micro", "weighted", "macro", "samples", "binary"]


class LossParameters(declare.Parameters):
    """Keys of every loss: what else is to be computed from the predictions of a split."""

    metrics: list[str] = declare.param(
        [],
        doc="More metrics of the held-out data to log, by name, beside those that the loss always gives.",
        metric_of="loss",
    )
    major_metric: str | None = declare.param(None, doc="Metric that decides what is best; computed in any case.")
    several_labels: bool = declare.param(False, doc="Whether a row may have several labels, from meta.hjson.")


class BertLossParameters(LossParameters):
    """Keys of the losses that also guess masked tokens."""

    lm_weight: float = declare.param(1.0, ge=0, doc="Weight of the masked tokens.")
    num_classes: int | None = declare.param(None, gt=0, doc="Number of classes, from meta.hjson.")


class ElectraParameters(LossParameters):
    """Keys of `electra`."""

    lm_weight: float = declare.param(1.0, ge=0, doc="Weight of the masked tokens, which train the generator.")
    rtd_weight: float = declare.param(50.0, ge=0, doc="Weight of telling replaced tokens from others.")


class RegressionParameters(LossParameters):
    """Keys of `mse`."""

    label_values: list[float] | None = declare.param(None, doc="The number that each label is, from meta.hjson.")

    def conflicts(self) -> list[tuple[str, str]]:
        """Refuse labels that are no numbers."""
        if self.label_values is None:
            return [("label_values", "is missing: labels are no numbers. Preprocess with target_type: number.")]
        return []


class QAParameters(LossParameters):
    """Keys of `bert_qa`."""

    max_answer_length: int = declare.param(30, gt=0, doc="Longest answer that is predicted, in tokens.")
    n_best: int = declare.param(1, gt=0, doc="Answers that x-pred writes for a question, with their probabilities.")
    null_threshold: float | None = declare.param(
        0.0, doc="A question has no answer where that scores so much more than the best one; null: all have one."
    )
    max_len: int = declare.param(doc="Longest text in tokens, from meta.hjson.", gt=0)
    data_dir: str | None = declare.param(None, doc="The folder that x-prepro wrote; its vocab.txt is used.")


class TaggingParameters(LossParameters):
    """Keys of `tagging`."""

    tags: list[str] | None = declare.param(None, doc="Names of the tags, from meta.hjson.")
    max_len: int = declare.param(doc="Longest text in tokens, from meta.hjson.", gt=0)


class ContrastParameters(LossParameters):
    """Keys of the losses that compare the rows of a batch."""

    temperature: float = declare.param(0.05, gt=0, doc="What cosines are divided by: the smaller, the sharper.")


class EpisodeShape(declare.Parameters):
    """What an episode is made of; the sampler that draws it and the loss that reads it must agree."""

    n_way: int = declare.param(10, ge=2, doc="N: classes of an episode.")
    k_shot: int = declare.param(5, ge=1, doc="K: rows of each class that it is to be known by.")
    q_query: int = declare.param(5, ge=1, doc="Q: rows of each class that are to be told.")


class FewshotParameters(LossParameters, EpisodeShape):
    """Keys of `fewshot`."""

    distance: Literal["euclidean", "cosine"] = declare.param(
        "euclidean", doc="How far a row is from a class: squared, or by the angle, which `temperature` sharpens."
    )
    temperature: float = declare.param(
        0.05, gt=0, doc="What cosines are divided by.", when=("distance", "is", "cosine")
    )
    use_r_dropout: bool = declare.param(False, doc="R-Drop: two passes with different dropout that must agree.")
    kl_alpha: float = declare.param(
        0.5, ge=0, doc="Weight of the disagreement of the two passes.", when=("use_r_dropout", "is", True)
    )


class RankParameters(LossParameters):
    """Keys of `listnet` and `ranknet`."""

    label_values: list[float] | None = declare.param(
        None, doc="The grade that each label is, from meta.hjson (target_type: number); null: its class number."
    )


class ContrastPretrainParameters(ContrastParameters):
    """Keys of `bert_pretrain_cl`."""

    lm_weight: float = declare.param(1.0, ge=0, doc="Weight of the masked tokens.")


class CrossEntropyParameters(LossParameters):
    """Keys of `cross_entropy`: what is trained and how the scores count."""

    negative_classes_in_f1: list[int] = declare.param(
        [], doc="Class numbers left out of precision, recall and F1 ('nothing of interest')."
    )
    predict_threshold: float | None = declare.param(
        None, ge=0, le=1, doc="Probability a class must reach, else the negative class is predicted; null: argmax."
    )
    query_level_f1: bool = declare.param(False, doc="Score only the best row of each query; needs data with query ids.")
    f1_average: Average = declare.param("micro", doc="How classes are averaged in precision, recall, F1.")
    use_r_dropout: bool = declare.param(False, doc="R-Drop: two passes with different dropout that must agree.")
    kl_alpha: float = declare.param(
        0.5, ge=0, doc="Weight of the disagreement of the two passes.", when=("use_r_dropout", "is", True)
    )
    takes_several_labels: ClassVar[bool] = False
    class_weights: list[float] | None = declare.param(
        None, ge=0, doc="Factor on the loss of the rows of each class, in the order of the classes; null: 1."
    )
    num_classes: int | None = declare.param(None, gt=0, doc="Number of classes, from meta.hjson.")

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
        if self.f1_average == "binary" and classes and classes != 2:
            found.append(("f1_average", f"is 'binary' but there are {classes} classes. Use macro, micro or weighted."))
        weights = self.class_weights
        if weights is not None and classes and len(weights) != classes:
            found.append(("class_weights", f"holds {len(weights)} numbers for {classes} classes. Use one for each."))
        return found
