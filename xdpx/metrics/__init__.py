"""Metrics, each computed once from the predictions of a whole split. Plain numpy; knows no loss and no model."""

from xdpx.metrics.classes import (
    ClassScore,
    Counts,
    accuracy,
    balanced_accuracy,
    confusion,
    each_class,
    kappa,
    matthews,
    precision_recall_f1,
    ratio,
    several_labels,
    top_accuracy,
)
from xdpx.metrics.intervals import share_interval
from xdpx.metrics.ranking import (
    area_under_curve,
    average_precision,
    best_row_per_query,
    discounted_gain,
    hit_rate,
    reciprocal_rank,
)
from xdpx.metrics.regression import mean_absolute_error, mean_squared_error, pearson, spearman
from xdpx.metrics.spans import (
    answer_f1,
    entities,
    entity_counts,
    entity_precision_recall_f1,
    entity_scores,
    exact_match,
)
from xdpx.metrics.thresholds import Cut, best_cut

__all__ = [
    "ClassScore",
    "Counts",
    "Cut",
    "accuracy",
    "answer_f1",
    "area_under_curve",
    "average_precision",
    "balanced_accuracy",
    "best_cut",
    "best_row_per_query",
    "confusion",
    "discounted_gain",
    "each_class",
    "entities",
    "entity_counts",
    "entity_precision_recall_f1",
    "entity_scores",
    "exact_match",
    "hit_rate",
    "kappa",
    "matthews",
    "mean_absolute_error",
    "mean_squared_error",
    "pearson",
    "precision_recall_f1",
    "ratio",
    "reciprocal_rank",
    "several_labels",
    "share_interval",
    "spearman",
    "top_accuracy",
]
