from __future__ import annotations

from typing import Any

import pytest

from xdpx.trainer.arguments import TrainingArguments
from xdpx.trainer.arguments.trackers import PACKAGES, installed, trackers


@pytest.mark.parametrize("given", [None, "none", [], ["none"], [None]])
def test_none_in_every_spelling_means_none(given: Any) -> None:
    assert trackers(given) == []


def test_names_and_objects_stay_as_they_are() -> None:
    def write(logs: dict[str, float]) -> None:
        del logs

    assert trackers("wandb") == ["wandb"]
    assert trackers(["tensorboard", write]) == ["tensorboard", write]
    assert trackers(write) == [write]
    assert '"write"' in TrainingArguments(report_to=write).to_json_string()  # type: ignore[arg-type]


def test_all_means_those_that_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PACKAGES, "mlflow", ("json",))
    assert "mlflow" in installed()
    assert trackers("all") == trackers(["all"]) == installed()


def test_a_kubeflow_job_reports_to_kubeflow_unless_told_not_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_URL", "http://x")
    assert trackers("none") == ["kubeflow"]
    monkeypatch.setenv("DISABLE_KUBEFLOW_INTEGRATION", "TRUE")
    assert trackers("none") == []
