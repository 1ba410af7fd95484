from typing import Any
from unittest import mock

import pytest
import torch

from xdpx.config.faults import ConfigError
from xdpx.losses import losses
from xdpx.runs.assembly import Parts, engine_options, splitter
from xdpx.runs.parameters import TrainParameters

NEEDED: dict[str, Any] = {
    "data_dir": "data", "save_dir": "run", "batch_size": 8, "eval_interval": 5, "major_metric": "acc",
    "learning_rate": 0.1, "processor": "single",
}  # fmt: skip


def test_every_key_of_mixed_precision_reaches_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"fp16": True, "fp16_init_scale": 64, "fp16_scale_tolerance": 0.25, "threshold_loss_scale": 4}
    options = engine_options(TrainParameters(**NEEDED, **keys, min_loss_scale=0.5, update_freq=4), seed=7)
    assert (options.precision, options.init_scale, options.seed) == ("fp16", 64.0, 7)
    assert (options.scale_tolerance, options.lowest_scale, options.min_loss_scale) == (0.25, 4.0, 0.5)
    assert options.scale_window == 2**12
    monkeypatch.setattr("xdpx.runs.assembly.place_in_group", lambda: (8, 3))
    assert engine_options(TrainParameters(**NEEDED, **keys, update_freq=4), seed=7).scale_window == 2**9


def test_a_gpu_is_taken_by_its_number_wherever_there_are_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    settings = [TrainParameters(**NEEDED, device_id=2, cuda=cuda) for cuda in (None, True)]
    assert [engine_options(each, seed=1).device for each in settings] == ["cuda:2", "cuda:2"]


def test_a_gpu_that_is_not_there_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    assert engine_options(TrainParameters(**NEEDED, device_id=2, cuda=False), seed=1).device == "cpu"
    assert "names GPU 2, but cuda is false" in capfd.readouterr().err
    if not torch.cuda.is_available():
        assert engine_options(TrainParameters(**NEEDED, device_id=2), seed=1).device == "cpu"
        assert "this machine has no GPU" in capfd.readouterr().err


def test_bf16_and_fp32_are_told_apart() -> None:
    chosen = [engine_options(TrainParameters(**NEEDED, bf16=bf16), seed=1).precision for bf16 in (True, False)]
    assert chosen == ["bf16", "fp32"]


def test_even_averages_begin_at_an_update_or_after_a_share_of_all() -> None:
    chosen = [engine_options(TrainParameters(**NEEDED, swa_start=at), 1, total=30).swa_start for at in (7, 0.75, None)]
    assert chosen == [7, 23, None]


def test_two_kinds_of_averages_are_refused() -> None:
    faults = TrainParameters(**NEEDED, max_update=4, swa_start=1.5, ema_decay=0.9).conflicts()
    assert [key for key, _ in faults] == ["swa_start", "swa_start"]


def test_a_loss_that_reads_a_fact_it_does_not_return_is_told_which() -> None:
    loss = losses["cross_entropy"](losses["cross_entropy"].Parameters())
    parts = Parts(mock.Mock(), loss, mock.Mock(), mock.Mock(), 1, 1, {})
    with pytest.raises(ConfigError, match="loss: reads the fact 'correct'.*There are: loss_sum, count"):
        parts.train_metrics({"loss_sum": 1.0, "count": 2.0})


class Halving:
    def split(self, batch: Any, parts: int) -> list[Any]:
        return [batch] * parts


@pytest.mark.parametrize("name", ["simcse", "bert_dpr", "bert_pretrain_cl", "circle", "circle_siamese", "ghmc"])
def test_a_batch_whose_rows_are_compared_is_not_cut(name: str) -> None:
    kind = losses[name]
    settings = TrainParameters(**NEEDED, max_update=4, auto_ga=True)
    with pytest.raises(ConfigError, match="compares the rows"):
        splitter(settings, Halving(), kind(kind.Parameters()))
    assert splitter(settings.model_copy(update={"auto_ga": False}), Halving(), kind(kind.Parameters())) is None


def test_a_batch_of_rows_that_stand_for_themselves_is_cut() -> None:
    settings, kind = TrainParameters(**NEEDED, max_update=4, auto_ga=True), losses["bce"]
    cut = splitter(settings, Halving(), kind(kind.Parameters()))
    assert cut is not None
    assert len(list(cut({}, 2))) == 2
