"""What the name of a metric tells: the range of its values, and which of two values is better."""

from __future__ import annotations

import math
import re

SIGNED = re.compile(r"(.*_)?(mcc|kappa|pearson|spearman)")
"""Scores between -1 and 1."""
SHARES = re.compile(r"(.*_)?(acc|accuracy|em|mrr|ndcg|hit|(micro|weighted|samples)_(precision|recall|f1))(@\d+)?")
"""Scores between 0 and 1 in which every row has equal weight."""
OF_CLASSES = re.compile(r"(.*_)?(precision|recall|f1|auc|average_precision|balanced_acc)(_.*)?")
"""Scores between 0 and 1 in which a rare class counts as much as a frequent one."""
ERRORS = re.compile(
    r"(.*_)?(log_?loss|loss|n?r?mse|r?msle|mae|medae|s?mape|crps|ppl|perplexity|wer|cer|h?ter|eer|err|error|"
    r"error_rate|nll|cross_entropy|ece|brier(_score)?|bits_per_(byte|char|character|token|word)|bp[bc])"
)
"""Metrics of which less is better."""
HIGHER = re.compile(r"(.*_)?((sacre)?bleu|rouge\w*|meteor|exact_match|r2|matthews_correlation|(pearson|spearman)r)")
"""Metrics of which more is better, on whatever scale."""


def range_of(metric: str) -> tuple[float, float]:
    """Return the least and the largest value that a metric of this name can have."""
    if SIGNED.fullmatch(metric):
        return -1.0, 1.0
    bounded = SHARES.fullmatch(metric) or OF_CLASSES.fullmatch(metric)
    return (0.0, 1.0) if bounded else (-math.inf, math.inf)


def is_higher_better(metric: str) -> bool | None:
    """Return whether a higher value of a metric is better; None if its name does not tell, as that of a threshold."""
    if ERRORS.fullmatch(metric):
        return None if "neg" in metric.split("_") else False  # neg_log_loss of scikit-learn is better if higher
    return True if HIGHER.fullmatch(metric) or math.isfinite(range_of(metric)[1]) else None
