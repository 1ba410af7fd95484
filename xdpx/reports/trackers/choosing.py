"""Which trackers a training uses: `report_to` holds names, or the user's own functions and objects."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from xdpx.config import packages
from xdpx.reports.trackers.values import TrainingState

KIND = "tracker"
"""Other packages offer trackers as entry points of the group `xdpx.tracker`."""

OURS = {
    "tensorboard": "xdpx.reports.trackers.tensorboard:TensorBoardCallback",
    "jsonl": "xdpx.reports.trackers.json_lines:JsonLines",
    "tables": "xdpx.reports.trackers.tables:RunTables",
}
"""Trackers of this package, by name."""

WHERE_THEIRS_ARE = "transformers.integrations"
THEIRS = {
    "azure_ml": ("AzureMLCallback", "azureml"),
    "clearml": ("ClearMLCallback", "clearml"),
    "codecarbon": ("CodeCarbonCallback", "codecarbon"),
    "comet_ml": ("CometCallback", "comet_ml"),
    "dagshub": ("DagsHubCallback", "dagshub"),
    "dvclive": ("DVCLiveCallback", "dvclive"),
    "flyte": ("FlyteCallback", "flytekit"),
    "kubeflow": ("KubeflowCallback", ""),
    "mlflow": ("MLflowCallback", "mlflow"),
    "neptune": ("NeptuneCallback", "neptune"),
    "swanlab": ("SwanLabCallback", "swanlab"),
    "trackio": ("TrackioCallback", "trackio"),
    "wandb": ("WandbCallback", "wandb"),
}
"""Trackers of transformers, by name: the class, and the package that it needs."""

TO_INSTALL = {"azureml": "azureml-sdk", "comet_ml": "comet-ml"}
"""Import name of a package -> the name to install it by, if they differ."""


class TrackerMissing(RuntimeError, ImportError):
    """A tracker cannot be used here. A subclass of both errors: the original raises either one."""


def trackers_for(report_to: object) -> list[Any]:
    """Return the trackers that `report_to` selects.

    Args:
        report_to: a name, "all" (all that are installed), or a list of names, of functions `(values, step)`, and of
            objects or classes with event methods; None, "none" and [] select none.

    Raises:
        ValueError: for an unknown name.
        TrackerMissing: if a package that a tracker needs is not installed.
    """
    wanted = list(report_to) if isinstance(report_to, list | tuple | set) else [report_to]
    names = [name for one in wanted for name in (installed() if one == "all" else [one])]
    return [tracker_for(name) for name in names if name is not None and name != "none"]


def own_trackers(report_to: object) -> list[Any]:
    """Return the trackers for a training that writes the run tables itself, so "tables" is skipped."""
    wanted = list(report_to) if isinstance(report_to, list | tuple) else [report_to]
    return trackers_for([name for name in wanted if name != "tables"])


def troubles_of(report_to: object) -> Iterator[str]:
    """Yield what is wrong with each name in `report_to`; of trackers, only those of other packages are imported."""
    for name in report_to if isinstance(report_to, list | tuple) else [report_to]:
        if isinstance(name, str) and name not in {"all", "none"}:
            package = THEIRS.get(name, ("", ""))[1]
            if trouble := _trouble_with_offered(name):
                yield trouble
            elif name not in {*OURS, *THEIRS, *packages.offered(KIND)}:
                yield _unknown(name, sorted({*OURS, *THEIRS, *packages.offered(KIND)}))
            elif package and importlib.util.find_spec(package) is None:
                yield _needing(name, package)


def tracker_for(wanted: object) -> Any:
    """Return one tracker: a new one for a name or class, a wrapper for a function, an object unchanged."""
    if isinstance(wanted, str):
        return _make(wanted)
    if isinstance(wanted, type):
        return wanted()
    if _hears(wanted):
        return wanted
    if callable(wanted):
        return Calling(wanted)
    advice = "Use a name, a function of (values, step), or an object with events such as on_log."
    raise ValueError(f"report_to: {wanted!r} is not a tracker. {advice}")


def installed() -> list[str]:
    """Return the names of transformers' trackers whose packages are installed; others must be named explicitly."""
    return list(importlib.import_module(WHERE_THEIRS_ARE).get_available_reporting_integrations())


def _make(name: str) -> Any:
    if trouble := _trouble_with_offered(name):
        raise ValueError(f"report_to: {trouble}")
    if name in packages.offered(KIND):
        thing = packages.load(packages.offered(KIND)[name][0])
        return thing() if isinstance(thing, type) or _can_be_called(thing) else tracker_for(thing)
    if name in OURS:
        module, _, kind = OURS[name].partition(":")
    elif name in THEIRS:
        module, (kind, package) = WHERE_THEIRS_ARE, THEIRS[name]
        if package and importlib.util.find_spec(package) is None:
            raise TrackerMissing(_needing(name, package))
    else:
        raise ValueError(f"report_to: {_unknown(name, sorted({*OURS, *THEIRS, *packages.offered(KIND)}))}")
    try:
        return getattr(importlib.import_module(module), kind)()
    except (ImportError, RuntimeError) as error:
        raise TrackerMissing(f"report_to: '{name}' cannot be used here: {error}") from error


def _trouble_with_offered(name: str) -> str:
    """Return what is wrong with a name that packages offer; "" if nothing is, or none offers it."""
    taken = packages.ambiguity(KIND, name, shipped=name in {*OURS, *THEIRS})
    if taken:
        return f"{taken.problem} {taken.remedy}"
    for point in packages.offered(KIND).get(name, ()):
        thing = packages.load(point)
        if not _hears(thing) and (isinstance(thing, type) or not callable(thing)):
            return f"'{name}' ({point.value}) has no event, such as on_log, so it is not a tracker. Define one."
        if isinstance(thing, type) and not _can_be_called(thing):
            return f"'{name}' ({point.value}) must be constructible without arguments. Give them defaults."
    return ""


def _can_be_called(thing: object) -> bool:
    """Return whether a class or a function needs no arguments."""
    try:
        inspect.signature(thing).bind()  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True


def _hears(thing: object) -> bool:
    return any(name.startswith("on_") for name in dir(thing))


def _needing(name: str, package: str) -> str:
    command = f"pip install {TO_INSTALL.get(package, package)}"
    return f"report_to: '{name}' needs the package {package}. Run `{command}`, or leave '{name}' out of report_to."


def _unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"Did you mean '{near[0]}'? " if near else ""
    all_or_none = "'all' means all that are installed, 'none' none"
    return f"no tracker is called '{name}'. {hint}There are {', '.join(known)}; {all_or_none}."


class Calling:
    """Calls `function(values, step)` with a copy of everything that is logged, on the first process only."""

    def __init__(self, function: Callable[[dict[str, Any], int], object]) -> None:
        self.function = function

    def on_log(
        self, args: object, state: TrainingState, control: object, logs: Mapping[str, Any], **kwargs: object
    ) -> None:
        """Pass on what was logged."""
        if state.is_world_process_zero:
            self.function(dict(logs), state.global_step)
