"""Parse YAML into values with positions, by the core schema of YAML 1.2: `1e-4` is a number, `no` is a text.

It is built from PyYAML's events, so that tags never construct objects, and nesting and the expansion of aliases are
limited. PyYAML itself would read `1e-4` as a text, `no` as false and `12:30:00` as 45000.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import yaml

from xdpx.config.faults import Fault, Origin, first_line
from xdpx.config.located import MAX_VALUES, Located, Table
from xdpx.config.source_text import MAX_DEPTH, SourceText, Unreadable, excerpt, read_number, short_path

_NULL = re.compile(r"null|Null|NULL|~|")
_TRUE = re.compile(r"true|True|TRUE")
_FALSE = re.compile(r"false|False|FALSE")
_NUMBER = re.compile(r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_OTHER_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_NOT_FINITE = re.compile(r"([-+]?)\.(inf|Inf|INF|nan|NaN|NAN)")
_Start: TypeAlias = yaml.MappingStartEvent | yaml.SequenceStartEvent
_TEXT_TAGS = {"!", "tag:yaml.org,2002:str"}


@dataclass
class _Frame:
    """A dict or list that is not closed yet, with the state needed to finish it."""

    located: Located
    anchor: str | None
    size: int = 1
    key: str | None = None
    key_origin: Origin | None = None


def read_yaml(source: SourceText, faults: list[Fault]) -> Located:
    """Return the content of a file with one YAML document.

    Duplicate keys and numbers out of range are added to `faults`.

    Raises:
        Unreadable: a syntax error, or something that configs must not contain, such as tags.
    """
    builder = _Builder(source, faults)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        for event in yaml.parse(source.text, Loader=loader):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        raise Unreadable(_explained(error, source)) from None
    except yaml.YAMLError as error:
        raise Unreadable(Fault("syntax", f"{first_line(error)}.", "", Origin(source.file))) from None
    return builder.document()


def _explained(error: yaml.MarkedYAMLError, source: SourceText) -> Fault:
    mark = error.problem_mark or error.context_mark
    problem = error.problem or error.context or "is not YAML"
    if mark is None:
        return Fault("syntax", f"{problem}.", "", Origin(source.file))
    line = source.text.split("\n")[mark.line] if mark.line <= source.text.count("\n") else ""
    around = line[max(0, mark.column - 1) : mark.column + 1]  # PyYAML points at the character or just behind it
    return Fault("syntax", f"{problem}.", _remedy(problem, around), Origin(source.file, mark.line + 1, mark.column + 1))


def _remedy(problem: str, around: str) -> str:
    """Return a remedy guessed from PyYAML's message and the characters that it points at; may be ''."""
    if "\t" in around:
        return "Indent with spaces: YAML refuses tabs."
    if "mapping values are not allowed" in problem:
        return "Write one `key: value` per line, with equal indentation, or quote the text."
    special = [character for character in "@`*&!%{}[]" if character in around]
    return f"Put the text in quotes: '{special[0]}' has a meaning in YAML." if special else ""


class _Builder:
    """Builds located values from events with an explicit stack, so that deep nesting cannot overflow Python's."""

    def __init__(self, source: SourceText, faults: list[Fault]) -> None:
        self.source = source
        self.faults = faults
        self.frames: list[_Frame] = []
        self.roots: list[Located] = []
        self.anchors: dict[str, tuple[Located, int]] = {}

    def document(self) -> Located:
        if not self.roots:
            raise Unreadable(Fault("file", "is empty.", "Write at least `{}`.", Origin(self.source.file)))
        return self.roots[0]

    def take(self, event: yaml.Event) -> None:
        """Process one event."""
        if isinstance(event, yaml.DocumentStartEvent) and self.roots:
            self.stop(event, "is a second document.", "Write one document; a list of dicts gives several runs.")
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self.open(event)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            self.close()
        elif isinstance(event, yaml.ScalarEvent):
            self.scalar(event)
        elif isinstance(event, yaml.AliasEvent):
            self.alias(event)

    def open(self, event: _Start) -> None:
        self.no_tag(event)
        if len(self.frames) >= MAX_DEPTH:
            self.stop(event, f"is nested deeper than {MAX_DEPTH} levels.", "Flatten it.")
        if self.expects_key():
            self.stop(event, "a key must be a text.", "Write `name: value`.")
        empty: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
        self.frames.append(_Frame(Located(empty, self.written(event)), event.anchor))

    def close(self) -> None:
        frame = self.frames.pop()
        self.finish(frame.located, frame.size, frame.anchor)

    def scalar(self, event: yaml.ScalarEvent) -> None:
        if self.expects_key():
            return self.take_key(event)
        value = self.resolved(event) if event.implicit[0] and event.tag is None else self.text(event)
        return self.finish(Located(value, self.written(event)), 1, event.anchor)

    def alias(self, event: Any) -> None:
        if event.anchor not in self.anchors:
            self.stop(
                event, f"*{event.anchor} refers to nothing above it.", f"Quote it if it is a text: '*{event.anchor}'."
            )
        if self.expects_key():
            self.stop(event, "a key must be a text, not an alias.", "Write it out.")
        located, size = self.anchors[event.anchor]
        if size + sum(frame.size for frame in self.frames) > MAX_VALUES:
            self.stop(event, f"aliases make more than {MAX_VALUES:,} values.", "Write them out or leave them out.")
        self.finish(located, size, None)

    def finish(self, located: Located, size: int, anchor: str | None) -> None:
        """Add a complete value to the enclosing list or dict."""
        if anchor:
            self.anchors[anchor] = (located, size)
        if not self.frames:
            self.roots.append(located)
            return
        frame = self.frames[-1]
        frame.size += size
        if isinstance(frame.located.value, list):
            frame.located.value.append(located)
        elif frame.key is not None:
            table: Table = frame.located.value
            table[frame.key] = Located(located.value, frame.key_origin or located.origin)
            frame.key = None

    def expects_key(self) -> bool:
        return bool(self.frames) and isinstance(self.frames[-1].located.value, dict) and self.frames[-1].key is None

    def take_key(self, event: yaml.ScalarEvent) -> None:
        frame, key = self.frames[-1], event.value
        self.no_tag(event)
        if key == "<<" and event.implicit[0]:
            self.stop(event, "`<<` merges are not part of YAML 1.2.", "Inherit with `__parent__` instead.")
        frame.key, frame.key_origin = key, self.written(event)
        if key in frame.located.value:
            first = frame.located.value[key].origin.line
            problem = f"is written twice: on line {first} and on line {frame.key_origin.line}."
            self.faults.append(Fault(self.path(), problem, "Remove one.", self.place(event)))

    def resolved(self, event: yaml.ScalarEvent) -> Any:
        """Return the value of a plain scalar by the core schema; `010` (leading zero) and `1_000` stay texts."""
        text = event.value
        if _NULL.fullmatch(text):
            return None
        if _TRUE.fullmatch(text) or _FALSE.fullmatch(text):
            return bool(_TRUE.fullmatch(text))
        if _OTHER_BASE.fullmatch(text):
            return int(text, 0)
        not_finite = _NOT_FINITE.fullmatch(text)
        if not_finite:
            return float(not_finite[1] + not_finite[2])
        return self.number(event) if _NUMBER.fullmatch(text) else text

    def number(self, event: yaml.ScalarEvent) -> int | float:
        try:
            return read_number(event.value)
        except ValueError as error:
            self.faults.append(Fault(self.path(), str(error), "Quote it if it is a text.", self.place(event)))
            return 0

    def text(self, event: yaml.ScalarEvent) -> str:
        if event.tag not in _TEXT_TAGS and event.tag is not None:
            self.no_tag(event)
        return str(event.value)

    def no_tag(self, event: _Start | yaml.ScalarEvent) -> None:
        if event.tag not in _TEXT_TAGS and event.tag is not None:
            self.stop(event, f"the tag {excerpt(event.tag)} is refused: a config is data.", "Remove the tag.")

    def path(self) -> str:
        """Return the dotted path of the current value."""
        parts = ""
        for frame in self.frames:
            if isinstance(frame.located.value, list):
                parts += f"[{len(frame.located.value)}]"
            elif frame.key is not None:
                parts += f".{frame.key}"
        return short_path(parts.removeprefix(".")) or "file"

    def written(self, event: Any) -> Origin:
        return Origin(self.source.file, event.start_mark.line + 1)

    def place(self, event: Any) -> Origin:
        return Origin(self.source.file, event.start_mark.line + 1, event.start_mark.column + 1)

    def stop(self, event: yaml.Event, problem: str, remedy: str) -> NoReturn:
        raise Unreadable(Fault(self.path(), problem, remedy, self.place(event)))
