from __future__ import annotations

from typing import Any

import pytest

from xdpx.config import checking
from xdpx.config.metrics import metrics_of, unknown_metrics
from xdpx.config.parameters import Parameters, entry_of, param
from xdpx.config.selection import Selected, Selection

TRAIN: dict[str, Any] = {"loss": "cross_entropy", "model": "cls_cnn", "num_classes": 2}


def complaint(**values: Any) -> str:
    draft = checking.check("x-train", {**TRAIN, **values}, origins={}, meta_keys=frozenset())
    return " ".join(str(fault) for fault in draft.faults if fault.key in {"major_metric", "metrics"})


def test_a_metric_of_the_loss_is_accepted() -> None:
    assert not complaint(major_metric="acc")
    assert not complaint(major_metric="auc")
    assert not complaint(major_metric="top5_acc", loss="masked_lm")


@pytest.mark.parametrize(
    ("name", "meant"), [("accurcy", "acc"), ("f2", "f1"), ("valid_auc", "auc"), ("presicion", "precision")]
)
def test_a_misspelt_metric_is_refused_with_the_one_that_was_meant(name: str, meant: str) -> None:
    assert f"loss cross_entropy gives no '{name}'. Did you mean '{meant}'?" in complaint(major_metric=name)


def test_a_metric_of_another_loss_is_refused_with_those_there_are() -> None:
    assert complaint(major_metric="f1", loss="masked_lm").endswith(
        "There are (* is a number): acc, loss, ppl, top5_acc."
    )


def test_the_star_of_a_metric_is_a_number() -> None:
    assert not complaint(major_metric="f1_12")
    assert "gives no 'f1_zork'. Did you mean 'f1'? There are (* is a number): " in complaint(major_metric="f1_zork")


def test_a_metric_that_needs_other_data_says_so() -> None:
    text = complaint(major_metric="auc", num_classes=3)
    assert "gives 'auc' only when num_classes is 2; it is 3. There are: " in text
    assert text.endswith(
        "acc, balanced_acc, best_f1, best_threshold, f1, f1_*, hit@*, kappa, loss, macro_auc, macro_average_precision, "
        "macro_f1, macro_precision, macro_recall, mcc, micro_f1, micro_precision, micro_recall, mrr, ndcg, ndcg@*, "
        "precision, recall, samples_f1, samples_precision, samples_recall, top*_acc, weighted_f1, weighted_precision, "
        "weighted_recall."
    )


def test_every_metric_of_a_list_is_looked_at() -> None:
    assert not complaint(major_metric="mcc", metrics=["top3_acc", "ndcg@10"])
    assert "gives no 'mmc'. Did you mean 'mcc'?" in complaint(major_metric="acc", metrics=["mmc", "mcc"])


def test_what_is_not_known_yet_may_hold() -> None:
    assert not complaint(major_metric="auc", num_classes=None)


class Own:
    """A user's loss."""

    metric_names = {"recall@*": None}

    def metrics(self) -> None:
        """Compute them."""


class Silent(Own):
    """Computes others than its parent, and does not say which."""

    def metrics(self) -> None:
        """Compute others."""


class Quiet(Own):
    """Computes what its parent does."""


class Trainer:
    """Something that names a metric."""

    class Parameters(Parameters):
        best_by: str = param(doc="what counts", metric_of="loss")


def complaints(loss: type, name: str) -> list[str]:
    entries = [entry_of("command", "x", Trainer), entry_of("loss", "own", loss)]
    selection = Selection([Selected("", entry) for entry in entries])
    return [problem for _, problem, _ in unknown_metrics(selection, {"best_by": name})]


def test_a_name_may_be_a_pattern() -> None:
    assert complaints(Own, "recall@5") == []
    assert complaints(Quiet, "recal@5") == ["loss own gives no 'recal@5'."]


def test_a_class_that_overrides_the_metrics_and_names_none_is_believed() -> None:
    assert complaints(Silent, "anything") == []


def test_help_and_editors_are_told_the_names() -> None:
    (item,) = (one for one in checking.catalogue.entry("command", "x-train").parameters if one.key == "major_metric")
    assert metrics_of(item)["masked_lm"] == ["loss", "acc", "top5_acc", "ppl"]
