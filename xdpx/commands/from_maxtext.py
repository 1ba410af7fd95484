"""Convert settings of MaxText to an experiment class, or an experiment to settings of MaxText.

Usage: x-script from_maxtext FILE|key=value...  [class=NAME] [base=EXPERIMENT] [slices=N] [devices=N]
       x-script from_maxtext EXPERIMENT --back [scale=N]

  FILE         a YAML file of MaxText, or a shell script that passes key=value words to it
  key=value    single settings; they override those of a file
  class=NAME   name of the class that is written (FromMaxText)
  base=NAME    what it derives from (lm.c4.C4SpmdAdamReplicas)
  slices=N     replaces a -1 of dcn_*_parallelism (1)
  devices=N    devices of one slice, replaces a -1 of ici_*_parallelism; by default the -1 stays: all devices found
  --back       print the settings of MaxText for an experiment; the four base_* are divided by scale (1)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from xdpx.commands.script_arguments import need_paths, read_arguments
from xdpx.config.faults import ConfigError, Fault
from xdpx.utils import io

NAME = "from_maxtext"
USAGE = "x-script from_maxtext FILE|key=value... [class=NAME] [base=EXPERIMENT] [slices=N] [devices=N]"
_OPTIONS = ("class", "base", "slices", "devices", "scale")
_WORD = re.compile(r"(?:^|[\s\"'])([a-z]\w*)=([^\s\"'\\]+)")
DEFAULT_BASE = "xdpx.experiments.lm.c4.C4SpmdAdamReplicas"


def main(argv: Sequence[str]) -> int:
    """Print the class, or the settings."""
    arguments = read_arguments(NAME, argv, flags=["--back"])
    words = dict(word.partition("=")[::2] for word in arguments.paths if "=" in word)
    files = [word for word in arguments.paths if "=" not in word]
    is_back = "--back" in arguments.flags
    taken = [name for name in _OPTIONS if is_back or name != "scale"]  # otherwise it is a setting of MaxText
    options = {name: words.pop(name) for name in taken if name in words}
    print(_settings_of(files, options) if is_back else _class_of(files, words, options))
    return 0


def _settings_of(names: list[str], options: Mapping[str, str]) -> str:
    from xdpx.config.user_modules import load_user_modules
    from xdpx.experiments.fields import values_of
    from xdpx.experiments.maxtext import from_fields
    from xdpx.experiments.registry import resolve

    load_user_modules()
    need_paths(NAME, read_arguments(NAME, names), USAGE, exactly=1)
    experiment: Any = resolve(names[0])()
    fields = values_of(experiment)
    for name in ("hidden_dims", "num_heads"):  # fields that are None have computed values
        fields[name.upper()] = getattr(experiment, name, None)
    if fields.get("NUM_STAGES"):
        fields["NUM_MICROBATCHES"] = experiment.num_microbatches()
    settings = from_fields(fields, scale=_number(options, "scale", 1))
    return "\n".join(f"{name}: {_plain(value)}" for name, value in settings.items())


def _class_of(files: list[str], words: Mapping[str, str], options: Mapping[str, str]) -> str:
    from xdpx.experiments.fields import check_value, fields_of
    from xdpx.experiments.maxtext import class_text, to_fields
    from xdpx.experiments.registry import resolve

    if not files and not words:
        need_paths(NAME, read_arguments(NAME, files), USAGE)
    settings: dict[str, Any] = {}
    for file in files:
        settings |= _read(file)
    settings |= {name: yaml.safe_load(value) for name, value in words.items()}
    devices = _number(options, "devices", 0)
    fields = to_fields(settings, num_slices=_number(options, "slices", 1), devices_per_slice=devices or None)
    base = resolve(options.get("base", DEFAULT_BASE))
    declared = fields_of(base)
    for name, value in fields.items():
        check_value("MaxText settings", declared, name, value)
    return class_text(options.get("class", "FromMaxText"), fields, f"{base.__module__}.{base.__qualname__}")


def _read(path: str) -> dict[str, Any]:
    """Read a YAML file, or the key=value words of a script. Raises ConfigError if there are none."""
    with io.open(path) as file:
        text = file.read()
    if path.endswith((".yml", ".yaml")):
        found = yaml.safe_load(text)
    else:
        joined = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith(("#", "export ")))
        found = {name: yaml.safe_load(value) for name, value in _WORD.findall(joined)}
    if not isinstance(found, dict) or not found:
        raise ConfigError(f"x-script {NAME}", [Fault(path, "contains no settings.", "Give a YAML file or a script.")])
    return found


def _number(options: Mapping[str, str], name: str, otherwise: int) -> int:
    text = options.get(name, str(otherwise))
    if not text.isdecimal():
        raise ConfigError(f"x-script {NAME}", [Fault(name, f"is '{text}'.", "Use a whole number.")])
    return int(text)


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
