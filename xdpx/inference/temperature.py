"""The temperature fitted for a run: a file in its folder, read only if a command asks for it."""

from __future__ import annotations

import json
from typing import Any

from xdpx.config.faults import ConfigError, Fault
from xdpx.inference.plan import InferencePlan, PredictingParameters
from xdpx.utils import commit, io

FILE_NAME = "temperature.json"


def temperature_of(options: PredictingParameters, plan: InferencePlan, source: str) -> float:
    """Return the temperature to divide logits by; 1 if none is given.

    Args:
        options: of the command.
        plan: holds the checkpoint in use.
        source: the config, for messages.

    Raises:
        ConfigError: it is "fitted", but none was fitted for these weights.
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
    """Write the fitted temperature into the folder of a run, and return the path of the file.

    Args:
        folder: of the run.
        found: `temperature`, the name of the `checkpoint`, and a description of the data it was fitted on.
    """
    path = io.join(folder, FILE_NAME)
    commit.write_text(path, json.dumps({"format": 1, **found}, indent=2, ensure_ascii=False) + "\n")
    return path
