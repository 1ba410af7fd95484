"""Parse the words of `x-submit`: its own flags, and the commands to submit, whose words are left unchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from xdpx.config import catalogue
from xdpx.config.faults import ConfigError, Fault, did_you_mean, nearest
from xdpx.config.hints import shown
from xdpx.launch.submission import JobStep, Resources

ACTIONS = ("status", "logs", "cancel", "list")
OWN_FLAGS = {
    "on": "PLACE: where to submit: {places}",
    "name": "name of the submission; default: that of the config",
    "far-root": "PATH: the working directory on the remote side",
    "only-there": "PATH: exists only on the remote side, so it is not checked here; may be repeated",
    "python": "the Python interpreter on the remote side; default: this one, or `python` where files are not shared",
    "dry": "check everything, print the files that would be written, and stop",
    "yes": "ask nothing",
    "help": "this page",
}
SWITCHES = frozenset({"dry", "yes", "help"})
LISTS = frozenset({"only-there"})
HANDLED_BEFORE = frozenset({"--verbose", "--quiet", "--json"})
"""Flags of every command, which are handled before."""


@dataclass
class SubmitLine:
    """The parsed command line.

    Attributes:
        action: `submit`, or one of `ACTIONS`.
        id: after an action; '' for the newest.
        steps: commands to submit.
        flags: our own, by name: text, True, or a list of texts.
        resources: {field of Resources: text} as given on the line.
    """

    action: str = "submit"
    id: str = ""
    steps: list[JobStep] = field(default_factory=list)
    flags: dict[str, Any] = field(default_factory=dict)
    resources: dict[str, str] = field(default_factory=dict)


def commands() -> tuple[str, ...]:
    """Return the commands that can be submitted."""
    return (*(name for name in catalogue.names("command") if " " not in name), "x-exp", "x-io", "x-run", "x-script")


def parse(words: Sequence[str], places: Sequence[str]) -> SubmitLine:
    """Parse the words after `x-submit`. Raises ConfigError with every fault."""
    request, faults = SubmitLine(), list[Fault]()
    rest = _take_flags(list(words), request, faults)
    if rest and rest[0] in ACTIONS:
        request.action, request.id = rest[0], " ".join(rest[1:2])
        faults += [Fault(word, "is not expected here.", "Give one id, or none.") for word in rest[2:]]
    else:
        request.steps = _steps(rest, faults)
        faults += _about_place(request.flags.get("on"), places)
    if faults:
        raise ConfigError("command line", faults)
    return request


def _take_flags(words: list[str], request: SubmitLine, faults: list[Fault]) -> list[str]:
    """Remove our flags from the words, up to a `--`, and return the other words."""
    left = list[str]()
    while words:
        word = words.pop(0)
        if word == "--":
            return [*left, *words]
        name, equals, text = word.removeprefix("--").partition("=")
        name = name.replace("_", "-")
        is_field = name.replace("-", "_") in Resources.model_fields
        if not word.startswith("--") or not (is_field or name in OWN_FLAGS):
            if word.startswith("--") and (near := _near(name, left)):
                faults.append(Fault(f"--{name}", "no such flag.", f"Did you mean --{near}?"))
                words = words if equals or not words or words[0].startswith("--") else words[1:]
                continue
            left += [word] if word not in HANDLED_BEFORE else []
        elif name in SWITCHES or (name == "v100" and not equals):
            _note(request, name, text or "true", is_field=is_field)
        elif equals or (words and not words[0].startswith("--")):
            value = text if equals else words.pop(0)
            if len(value.splitlines()) > 1:  # in a script, a second line would be a directive of its own
                faults.append(
                    Fault(f"--{name}", f"is {shown(value)}, which has several lines.", "Write it on one line.")
                )
            _note(request, name, value, is_field=is_field)
        else:
            faults.append(Fault(word, "has no value.", f"Write --{name}=VALUE."))
    return left


def _near(name: str, before: Sequence[str]) -> str:
    """Return our flag that was meant by one that is neither ours nor a key of the command it stands behind; else ''.

    Words behind a command that takes words instead of a config, such as x-script, are its own.
    """
    command = next((word for word in reversed(before) if word in commands()), None)
    configured = catalogue.names("command")
    if command is not None and command not in configured:
        return ""
    keys = {item.key for each in configured for entry in catalogue.reachable_entries(each) for item in entry.parameters}
    flags = {field.replace("_", "-") for field in (*OWN_FLAGS, *Resources.model_fields)}
    near = nearest(name, flags | keys) if name.replace("-", "_") not in keys else None
    return near if near in flags else ""


def _note(request: SubmitLine, name: str, text: str, *, is_field: bool) -> None:
    if is_field:
        request.resources[name.replace("-", "_")] = text
    elif name in LISTS:
        request.flags.setdefault(name, []).append(text)
    else:
        request.flags[name] = True if name in SWITCHES else text


def _steps(words: list[str], faults: list[Fault]) -> list[JobStep]:
    """Split the words into commands. Words after a command belong to it."""
    known, found = commands(), list[list[str]]()
    for word in words:
        if word in known:
            found.append([word])
        elif found:
            found[-1].append(word)
        else:
            remedy = did_you_mean(word, (*known, *ACTIONS), f"Use one of: {', '.join((*known, *ACTIONS))}.")
            faults.append(Fault(word or "''", "no such command.", remedy))
            return []
    if not found:
        faults.append(Fault("command", "is missing.", "Write: x-submit x-train CONFIG --on slurm"))
    return [JobStep(tuple(each)) for each in found]


def _about_place(place: str | None, places: Sequence[str]) -> list[Fault]:
    listed = f"Use one of: {', '.join(places)}."
    if place is None:
        return [Fault("--on", "is missing: where should it run?", listed)]
    if place not in places:
        return [Fault("--on", f"there is no '{place}'.", did_you_mean(place, places, listed))]
    return []


def resources_of(from_line: Mapping[str, str], from_configs: Mapping[str, Any]) -> Resources:
    """Return the resources requested; the command line overrides configs.

    Args:
        from_line: {field: text}.
        from_configs: {field: value}.

    Raises:
        ConfigError: a value is invalid.
    """
    try:
        return Resources.model_validate({**from_configs, **from_line})
    except ValidationError as error:
        faults = []
        for found in error.errors():
            name = str(found["loc"][0]) if found["loc"] else "resources"
            message = found["msg"].replace("Input should be ", "Use ").rstrip(".")
            shown = name if name in from_line else f"{name} (of the config)"
            faults.append(Fault(f"--{shown.replace('_', '-')}", f"is '{found['input']}'.", f"{message}."))
        raise ConfigError("command line", faults) from None


def usage(places: Sequence[str]) -> str:
    """Return the help text."""
    width = 14
    own = [f"  --{name.ljust(width)} {text.format(places=', '.join(places))}" for name, text in OWN_FLAGS.items()]
    asked = Resources.model_fields.items()
    fields = [f"  --{name.replace('_', '-').ljust(width)} {info.description}" for name, info in asked]
    lines = [
        "x-submit <command> <config> [key=value ...] [<command> <config> ...] --on PLACE [flags]",
        "x-submit status|logs|cancel [ID]     the newest submission without an ID",
        "x-submit list", "", "flags", *own, "", "resources", *fields, "",
        "Configs may set these too: __gpu__ __cpu__ __memory__ __worker__ __pytorch__ __v100__; flags win.",
    ]  # fmt: skip
    return "\n".join(lines)
