"""`HfArgumentParser`: from a command line, a dict or a file to dataclasses."""

from __future__ import annotations

import dataclasses
import json
import sys
from argparse import SUPPRESS, ArgumentDefaultsHelpFormatter, ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, get_type_hints

from xdpx.config.faults import ConfigError, Fault, nearest
from xdpx.config.located import plain as plain_yaml
from xdpx.config.source_text import SourceText, Unreadable
from xdpx.trainer.arguments.legacy import OLD_NAMES, TOLD_APART, AcceptsOldNames, note_written
from xdpx.trainer.arguments.parser_options import Flag, add_option, option_settings
from xdpx.trainer.arguments.values import plain, plain_kinds
from xdpx.utils import io
from xdpx.utils.paths import StrPath


def HfArg(  # name and parameters as users know them
    *,
    aliases: str | list[str] | None = None,
    help: str | None = None,  # noqa: A002
    default: Any = dataclasses.MISSING,
    default_factory: Any = dataclasses.MISSING,
    metadata: Mapping[str, Any] | None = None,
    **more: Any,
) -> Any:
    """Declare a field of a dataclass, with settings for the parser.

    `lr: float = HfArg(default=1e-3, aliases=["-l"], help="Peak learning rate.")`

    Args:
        aliases: further names of its option.
        help: its text in `--help`.
        default: its default.
        default_factory: called to make its default.
        metadata: further settings for argparse.
        more: as for `dataclasses.field`.
    """
    said = {"aliases": aliases, "help": help}
    details = dict(metadata or {}) | {key: value for key, value in said.items() if value is not None}
    given = {"default": default, "default_factory": default_factory}
    given = {key: value for key, value in given.items() if value is not dataclasses.MISSING}
    return dataclasses.field(metadata=details, **given, **more)


class HfArgumentParser(ArgumentParser):
    """A parser with an option for each field of one or more dataclasses.

    Every flag takes `--x`, `--x true`, `--x false` and `--no_x`; `-` and `_` in names are equivalent; deprecated names
    are accepted for `TrainingArguments`. Options added with `add_argument` are returned in a separate namespace.

    Args:
        dataclass_types: a dataclass, or several.
        options: as for `argparse.ArgumentParser`.
    """

    dataclass_types: list[type]

    def __init__(self, dataclass_types: type | Iterable[type] | None = None, **options: Any) -> None:
        super().__init__(**({"formatter_class": ArgumentDefaultsHelpFormatter} | options))
        given = [] if dataclass_types is None else dataclass_types
        self.dataclass_types = [given] if isinstance(given, type) else list(given)
        taken = {each.name for owner in self.dataclass_types for each in dataclasses.fields(owner)}
        for owner in self.dataclass_types:
            self._add_fields(owner, taken)

    def _add_fields(self, owner: type, taken: set[str]) -> None:
        title = getattr(owner, "_argument_group_name", None)
        group = self.add_argument_group(title) if title else self
        try:
            hints = get_type_hints(owner)
        except NameError as error:
            raise RuntimeError(
                f"{owner.__name__}: the type of a field cannot be resolved ({error}). Define the class at the top "
                "level of its file and import the types of its fields there, or remove `from __future__ import "
                "annotations` from that file."
            ) from error
        for each in dataclasses.fields(owner):
            if each.init:
                told_apart = each.name in getattr(owner, TOLD_APART, ())
                add_option(group, each, hints[each.name], taken, told_apart=told_apart)

    # ---- command lines

    def parse_known_args(self, args: Any = None, namespace: object = None) -> Any:
        """Parse the known options of a command line; return (namespace, the other words)."""
        words = list(sys.argv[1:] if args is None else args)
        end = words.index("--") if "--" in words else len(words)
        today = [self._respelled(word) if word.startswith("--") else word for word in words[:end]]
        return super().parse_known_args(today + words[end:], namespace)

    def _respelled(self, word: str) -> str:
        """Return a known option with `_` for `-`; a deprecated one is added to the parser."""
        flag, equals, value = word.partition("=")
        if self._begins_an_option(flag):
            return word
        spelled = f"--{flag[2:].replace('-', '_')}"
        name = spelled[2:]
        if name in OLD_NAMES and any(isinstance(owner, AcceptsOldNames) for owner in self.dataclass_types):
            if spelled not in self._option_string_actions:
                self.add_argument(spelled, dest=name, default=SUPPRESS, help=SUPPRESS, **_of_kind(OLD_NAMES[name].kind))
            return spelled + equals + value
        return spelled + equals + value if self._begins_an_option(spelled) else word

    def _begins_an_option(self, flag: str) -> bool:
        return any(known.startswith(flag) for known in self._option_string_actions)

    def parse_args_into_dataclasses(
        self,
        args: Sequence[str] | None = None,
        return_remaining_strings: bool = False,
        look_for_args_file: bool = True,
        args_filename: StrPath | None = None,
        args_file_flag: str | None = None,
    ) -> tuple[Any, ...]:
        """Parse a command line into objects of the dataclasses.

        Args:
            args: the words of the command line; None: those of this process.
            return_remaining_strings: return unknown words instead of raising.
            look_for_args_file: read more words from the file named like the script with the suffix `.args`, if any.
            args_filename: read them from this file instead.
            args_file_flag: name of an option with such files; later files override earlier ones, the command line all.

        Returns:
            The objects in the order of the dataclasses; a namespace of the options added by `add_argument`, if any; the
            list of unknown words, if requested.

        Raises:
            ValueError: for unknown words, with the nearest option for each.
        """
        words = list(sys.argv[1:] if args is None else args)
        files, words = _argument_files(words, look_for_args_file, args_filename, args_file_flag)
        namespace, rest = self.parse_known_args([*_words_of(files), *words])
        found: list[Any] = [self._made(owner, namespace) for owner in self.dataclass_types]
        if vars(namespace):
            found.append(namespace)
        if return_remaining_strings:
            return (*found, rest)
        if rest:
            raise ValueError(self._unknown(rest))
        return tuple(found)

    def _made(self, owner: type, namespace: Namespace) -> Any:
        """Return an object of a dataclass from the namespace, and remove its values from there."""
        declared = {each.name: each for each in dataclasses.fields(owner) if each.init}
        values = {name: vars(namespace).pop(name) for name in declared if name in vars(namespace)}
        if isinstance(owner, AcceptsOldNames):
            old = {name: vars(namespace).pop(name) for name in OLD_NAMES if name in vars(namespace)}
            if old:  # defaults must not contradict deprecated names that were given
                values = {name: value for name, value in values.items() if value != declared[name].default} | old
        made = owner(**values)
        if hasattr(owner, TOLD_APART):
            note_written(made, values.keys() & getattr(owner, TOLD_APART))
        return made

    def _unknown(self, rest: Sequence[str]) -> str:
        flags = [word.partition("=")[0] for word in rest if word.startswith("--")]
        told = _offers(flags, self._option_string_actions)
        return f"Some specified arguments are not used by the HfArgumentParser: {list(rest)}.{told}"

    # ---- dicts and files

    def parse_dict(self, args: Mapping[str, Any], allow_extra_keys: bool = False) -> tuple[Any, ...]:
        """Return the objects from a dict; each takes its keys. Raises ValueError for keys of none of them."""
        unused, found, known = set(args), [], set[str]()
        for owner in self.dataclass_types:
            names = {each.name for each in dataclasses.fields(owner) if each.init}
            names |= OLD_NAMES.keys() if isinstance(owner, AcceptsOldNames) else set()
            unused -= names
            known |= names
            found.append(owner(**_plain_values(owner, {name: args[name] for name in args if name in names})))
        if unused and not allow_extra_keys:
            keys = sorted(map(str, unused))
            raise ValueError(f"Some keys are not used by the HfArgumentParser: {keys}.{_offers(keys, known)}")
        return tuple(found)

    def parse_json_file(self, json_file: StrPath, allow_extra_keys: bool = False) -> tuple[Any, ...]:
        """Return the objects from a JSON file. Raises ValueError for keys of none of them."""
        return self.parse_dict(_read(json_file, _json), allow_extra_keys)

    def parse_yaml_file(self, yaml_file: StrPath, allow_extra_keys: bool = False) -> tuple[Any, ...]:
        """Return the objects from a YAML file, in which 1e-4 is a number and `no` is text. Raises ValueError, too."""
        return self.parse_dict(_read(yaml_file, lambda text: _yaml(text, str(yaml_file))), allow_extra_keys)


def _offers(unknown: Iterable[str], known: Iterable[str]) -> str:
    """Return a line for each unknown name, with the nearest known one."""
    near = {name: nearest(name, known) for name in unknown}
    return "".join(f"\n  no {name} is known" + (f": did you mean {n}?" if n else ".") for name, n in near.items())


def _of_kind(kind: type) -> dict[str, Any]:
    settings = option_settings(kind)
    return settings if settings.get("action") is not Flag else settings | {"action": "store"}


def _argument_files(
    words: list[str], beside_script: bool, named: StrPath | None, flag: str | None
) -> tuple[list[str], list[str]]:
    """Return the files with more words, lowest priority first, and the words without the flag that names files."""
    files = [str(named)] if named else []
    if not named and beside_script and sys.argv and sys.argv[0]:
        files = [str(Path(sys.argv[0]).with_suffix(".args"))]
    if flag:
        finder = ArgumentParser(add_help=False, allow_abbrev=False)
        finder.add_argument(flag, dest="files", action="append", default=[])
        given, words = finder.parse_known_args(words)
        files += given.files
    return files, words


def _words_of(files: Iterable[str]) -> list[str]:
    words: list[str] = []
    for path in files:
        if io.isfile(path):
            with io.open(path) as file:
                words += file.read().split()
    return words


def _plain_values(owner: type, values: dict[str, Any]) -> dict[str, Any]:
    """Return the values as a command line would give them: text as numbers, flags or lists, where the fields are such.

    Raises:
        ConfigError: a value is none that its field may have. `TrainingArguments` themselves check most of theirs.
    """
    kinds, faults, result = plain_kinds(owner), [], dict(values)
    settings = {} if isinstance(owner, AcceptsOldNames) else _settings_of(owner)
    for name, value in values.items():
        try:
            if name in kinds and isinstance(value, str | float):
                result[name] = plain(value, kinds[name])
            elif name in settings and value is not None:
                result[name] = _declared(value, settings[name])
        except ValueError as error:
            faults.append(Fault(name, str(error)))
    if faults:
        raise ConfigError(owner.__name__, faults)
    return result


def _settings_of(owner: type) -> dict[str, dict[str, Any]]:
    """Return for each field of a user's dataclass the settings of its option."""
    hints = get_type_hints(owner)
    return {
        each.name: option_settings(hints[each.name]) | dict(each.metadata)
        for each in dataclasses.fields(owner)
        if each.init
    }


def _declared(value: Any, settings: Mapping[str, Any]) -> Any:
    """Return a value of a file as its field declares it. Raises ValueError, to follow the name of the field."""
    if settings.get("nargs") == "+":
        either = "action" in settings  # one text may stay one
        if isinstance(value, str):
            return value if either else [_declared(value, {**settings, "nargs": None})]
        if not isinstance(value, list) or either:
            return value
        return [_declared(each, {**settings, "nargs": None}) for each in value]
    choices = settings.get("choices")
    if choices is not None and not isinstance(value, Enum) and value not in choices:
        raise ValueError(f"is {value!r:.60}. Choose one of: {', '.join(map(str, choices))}.")
    return plain(value, settings["type"]) if settings.get("type") in (int, float) and isinstance(value, str) else value


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs of an object in JSON as a dict. Raises ValueError for a key that is there twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"'{twice}' is written twice. Remove one.")
    return found


def _read(path: StrPath, parse: Callable[[str], Any]) -> dict[str, Any]:
    with io.open(path) as file:
        try:
            values = parse(file.read())
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}: is not JSON: {error}.") from error
        except ConfigError:
            raise
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path}: holds {type(values).__name__}, not a dict. Write one key and value per argument.")
    return values


def _json(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_refuse_repeated)


def _yaml(text: str, path: str) -> Any:
    from xdpx.config.yaml_reader import read_yaml  # imports PyYAML only if it is needed

    faults: list[Fault] = []
    try:
        values = read_yaml(SourceText(text, path), faults)
    except Unreadable as error:
        raise ConfigError(path, [*faults, error.fault]) from error
    if faults:
        raise ConfigError(path, faults)
    return plain_yaml(values)
