import pytest

from xdpx.utils.metric_names import is_higher_better


@pytest.mark.parametrize(("metrics", "higher"), [
    (["acc", "top5_acc", "macro_f1", "f1_3", "ndcg@10", "pearson", "in_batch_mrr", "accuracy", "rouge2"], True),
    (["loss", "lm_loss", "layer_3_loss", "mse", "eval_rmse", "mae", "ppl", "perplexity", "eval_wer"], False),
    (["dev_nll", "ece", "brier_score", "bits_per_byte"], False),
    (["best_threshold", "neg_log_loss", "eval_neg_mse", "sureness", "power", "answer"], None),
])  # fmt: skip
def test_the_direction_of_a_metric_is_known_by_its_name_or_left_open(metrics: list[str], higher: bool | None) -> None:
    assert {is_higher_better(metric) for metric in metrics} == {higher}
