from typing import Any

from xdpx.runs.assembly import engine_options
from xdpx.runs.parameters import TrainParameters

NEEDED: dict[str, Any] = {
    "data_dir": "data", "save_dir": "run", "batch_size": 8, "eval_interval": 5, "major_metric": "acc",
    "learning_rate": 0.1, "processor": "single",
}  # fmt: skip


def test_every_key_of_mixed_precision_reaches_the_engine() -> None:
    keys = {"fp16": True, "fp16_init_scale": 64, "fp16_scale_tolerance": 0.25, "threshold_loss_scale": 4}
    options = engine_options(TrainParameters(**NEEDED, **keys, min_loss_scale=0.5, update_freq=4), seed=7)
    assert (options.precision, options.init_scale, options.seed) == ("fp16", 64.0, 7)
    assert (options.scale_tolerance, options.lowest_scale, options.min_loss_scale) == (0.25, 4.0, 0.5)
    assert options.scale_window == 2**12


def test_bf16_and_fp32_are_told_apart() -> None:
    chosen = [engine_options(TrainParameters(**NEEDED, bf16=bf16), seed=1).precision for bf16 in (True, False)]
    assert chosen == ["bf16", "fp32"]
