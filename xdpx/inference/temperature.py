"""The temperature that was fitted for a run: written beside it, read only where a command asks for it."""

from __future__ import annotations

import json
from typing import Any

from xdpx.config.faults import ConfigError, Fault
from xdpx.inference.plan import InferencePlan, PredictingParameters
from xdpx.utils import commit, io

FILE_NAME = "temperature.json"


def temperature_of(options: PredictingParameters, plan: InferencePlan, source: str) -> float:
    """Return by what logits are to be divided; 1 where nothing is asked for.

    Args:
        options: of the command.
        plan: says which checkpoint predicts.
        source: the config, for messages.

    Raises:
        ConfigError: none was fitted for these weights.
    """
    if options.temperature != "fitted":
        return 1.0 if options.temperature is None else float(options.temperature)
    folder = str(options.save_dir)
    path, remedy = io.join(folder, FILE_NAME), f"Run: x-script calibrate {folder}."
    if not io.isfile(path):
        problem = f"is 'fitted', but there is no {path}."
        raise ConfigError(source, [Fault("temperature", problem, remedy, code="missing_path")])
    with io.open(path, encoding="utf-8") as file:
        try:
            stored = json.loads(file.read())
            temperature, checkpoint = float(stored["temperature"]), str(stored["checkpoint"])
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(path, [Fault("temperature", f"cannot be read ({error}).", remedy)]) from error
    used = io.name(plan.checkpoint or "")
    if used != checkpoint:
        problem = f"was fitted for {checkpoint}, not for {used or 'the initial weights'}."
        raise ConfigError(path, [Fault("temperature", problem, f"{remedy[:-1]} checkpoint={used}.")])
    return temperature


def write_temperature(folder: str, found: dict[str, Any]) -> str:
    """Write what was fitted beside a run, and return the path of the file.

    Args:
        folder: of the run.
        found: `temperature`, the name of the `checkpoint`, and on what it was fitted.
    """
    path = io.join(folder, FILE_NAME)
    commit.write_text(path, json.dumps({"format": 1, **found}, indent=2, ensure_ascii=False) + "\n")
    return path
