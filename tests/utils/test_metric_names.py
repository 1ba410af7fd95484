import pytest

from xdpx.losses import losses
from xdpx.metrics.named import TABLE
from xdpx.utils.metric_names import is_higher_better


@pytest.mark.parametrize(("metrics", "higher"), [
    (["acc", "top5_acc", "macro_f1", "f1_3", "ndcg@10", "pearson", "in_batch_mrr", "accuracy", "rouge2"], True),
    (["loss", "lm_loss", "layer_3_loss", "mse", "eval_rmse", "mae", "ppl", "perplexity", "eval_wer"], False),
    (["dev_nll", "ece", "brier_score", "bits_per_byte", "logloss", "valid_err", "eer", "smape"], False),
    (["best_threshold", "neg_log_loss", "eval_neg_mse", "sureness", "power", "answer", "cost", "berr"], None),
])  # fmt: skip
def test_the_direction_of_a_metric_is_known_by_its_name_or_left_open(metrics: list[str], higher: bool | None) -> None:
    assert {is_higher_better(metric) for metric in metrics} == {higher}


def test_the_direction_of_every_shipped_metric_is_known() -> None:
    of_losses = {name.replace("*", "1") for loss in losses.shipped for name in losses[loss].metric_names or ()}
    by_name = {pattern.pattern.replace(r"(\d+)", "1") for pattern, _ in TABLE}

    unknown = {metric for metric in of_losses | by_name if is_higher_better(metric) is None}

    assert unknown == {"threshold", "best_threshold", "best_null_threshold", "acc_interval"}  # neither is better
