"""Which trackers a training has: `report_to` names them, or holds functions and objects of the user's own."""

from __future__ import annotations

import difflib
import importlib
from typing import Any

OURS = {
    "tensorboard": "xdpx.reports.trackers.tensorboard:TensorBoardCallback",
    "jsonl": "xdpx.reports.trackers.json_lines:JsonLines",
}
"""Those written here, by name."""

THEIRS = {
    "azure_ml": "AzureMLCallback",
    "clearml": "ClearMLCallback",
    "codecarbon": "CodeCarbonCallback",
    "comet_ml": "CometCallback",
    "dagshub": "DagsHubCallback",
    "dvclive": "DVCLiveCallback",
    "flyte": "FlyteCallback",
    "kubeflow": "KubeflowCallback",
    "mlflow": "MLflowCallback",
    "neptune": "NeptuneCallback",
    "swanlab": "SwanLabCallback",
    "trackio": "TrackioCallback",
    "wandb": "WandbCallback",
}
"""Those that transformers has, by name; each needs a package of its own."""


def trackers_for(report_to: Any) -> list[Any]:
    """Give the trackers that `report_to` asks for.

    Args:
        report_to: a name, "all" (whatever is installed), or a list of names, of functions `(values, step)`, and of
            objects or classes with events; None, "none" and [] ask for none.

    Raises:
        ValueError: for an unknown name.
        RuntimeError, ImportError: when a tracker's package is missing.
    """
    wanted = list(report_to) if isinstance(report_to, list | tuple | set) else [report_to]
    names = [name for one in wanted for name in (installed() if one == "all" else [one])]
    return [tracker_for(name) for name in names if name is not None and name != "none"]


def tracker_for(wanted: Any) -> Any:
    """Give one tracker: for a name a new one; for a function one that calls it; an object as it is."""
    if isinstance(wanted, str):
        return _make(wanted)
    if isinstance(wanted, type):
        return wanted()
    if any(name.startswith("on_") for name in dir(wanted)):
        return wanted
    if callable(wanted):
        from xdpx.reports.trackers.calling import Calling

        return Calling(wanted)
    advice = "Use a name, a function of (values, step), or an object with events such as on_log."
    raise ValueError(f"report_to: {wanted!r} is no tracker. {advice}")


def installed() -> list[str]:
    """Name the trackers whose packages are there; those that need none are asked for by name only."""
    from transformers.integrations import get_available_reporting_integrations

    return list(get_available_reporting_integrations())


def _make(name: str) -> Any:
    if name not in OURS and name not in THEIRS:
        raise ValueError(f"report_to: {_unknown(name, sorted({*OURS, *THEIRS}))}")
    module, _, kind = OURS.get(name, f"transformers.integrations:{THEIRS.get(name)}").partition(":")
    try:
        return getattr(importlib.import_module(module), kind)()
    except (ImportError, RuntimeError) as error:
        sort = ImportError if isinstance(error, ImportError) else RuntimeError
        raise sort(f"report_to: '{name}' cannot be used here: {error} Or leave '{name}' out of report_to.") from error


def _unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean '{near[0]}'? " if near else ""
    all_or_none = "'all' is whatever is installed, 'none' nothing"
    return f"no tracker is called '{name}'. {hint}There are {', '.join(known)}; {all_or_none}."
