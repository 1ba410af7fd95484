"""Processes that train together; journeys/test_many_devices.py starts some."""

from __future__ import annotations

import pytest

from xdpx.runs import devices
from xdpx.runs.parameters import TrainParameters

NEEDED = {
    "data_dir": "data", "save_dir": "run", "batch_size": 8, "eval_interval": 5, "major_metric": "acc",
    "learning_rate": 0.1, "processor": "single",
}  # fmt: skip


def test_what_accelerate_is_configured_for_and_the_config_is_not_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", "NO")
    assert devices.join(TrainParameters.model_validate({**NEEDED, "bf16": True})).size == 1
    assert "accelerate launch: use_fsdp true has no effect on x-train. Write strategy: fsdp" in capsys.readouterr().err
    devices.join(TrainParameters.model_validate({**NEEDED, "bf16": True, "strategy": "fsdp"}))
    assert "accelerate" not in capsys.readouterr().err
