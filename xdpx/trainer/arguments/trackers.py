"""`report_to`: the trackers that a run reports to."""

from __future__ import annotations

import importlib.util
import os
from typing import Any

PACKAGES = {
    "azure_ml": ("azureml",),
    "comet_ml": ("comet_ml",),
    "dagshub": ("dagshub",),
    "dvclive": ("dvclive",),
    "mlflow": ("mlflow",),
    "neptune": ("neptune",),
    "tensorboard": ("tensorboard", "tensorboardX"),
    "wandb": ("wandb",),
    "codecarbon": ("codecarbon",),
    "clearml": ("clearml",),
    "swanlab": ("swanlab",),
    "trackio": ("trackio",),
}
"""For each tracker, the packages of which one must be installed."""


def installed() -> list[str]:
    """Return the trackers whose packages are installed."""
    return [name for name, packages in PACKAGES.items() if any(map(importlib.util.find_spec, packages))]


def trackers(value: object) -> list[Any]:
    """Return the trackers requested by `report_to`: names, or objects and functions unchanged.

    None and 'none' request none, 'all' those that are installed. A Kubeflow job also reports to Kubeflow, as its
    environment requests.
    """
    given = list(value) if isinstance(value, list | tuple | set) else [value]
    asked = [name for name in given if name is not None and name != "none"]
    if "all" in asked:
        asked = [*dict.fromkeys([*(name for name in asked if name != "all"), *installed()])]
    disabled = os.environ.get("DISABLE_KUBEFLOW_INTEGRATION", "").upper() == "TRUE"
    if "KUBEFLOW_TRAINER_SERVER_URL" in os.environ and not disabled and "kubeflow" not in asked:
        asked.append("kubeflow")
    return asked
