"""Reads the text of a compiled XLA program: its computations, what each line makes, and how often each runs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

_HEADER = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .*\{$")
_LINE = re.compile(r"^\s+(?:ROOT )?%?([\w.\-]+) = (.*)$")
_OPERATION = re.compile(r"([a-z][\w\-]*)\(")
_ARRAY = re.compile(r"\b(pred|token|[a-z]\w*?\d+\w*)\[([\d,]*)\]")
_CALLED = re.compile(
    r"(?:to_apply|body|condition|branch_computations|true_computation|false_computation|called_computations)="
    r"(?:\{([^}]*)\}|%?([\w.\-]+))"
)
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_NAME = re.compile(r'op_name="([^"]*)"')
_FUSED = re.compile(r"calls=%?([\w.\-]+)")
_TURNS = frozenset({"bitcast", "copy", "transpose", "reshape", "convert"})
_OPERAND = re.compile(r"%([\w.\-]+)")
_BITS = re.compile(r"(\d+)")
_WRAPPED = re.compile(r"\b(?:jit\([\w<>]*\)|[\w]+\()")
_NO_PLACES = frozenset(
    {"while", "body", "cond", "closed_call", "checkpoint", "rematted_computation", "remat", "sub", ""}
)


@dataclass(frozen=True)
class Array:
    """One array in the text, with the shape that one device holds."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Its size."""
        return math.ceil(math.prod(self.shape) * bits_of(self.dtype) / 8)

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class Line:
    """One operation: its name, kind, result (several arrays for a tuple), source name, and the text after the kind."""

    name: str
    kind: str
    results: tuple[Array, ...]
    source: str
    text: str

    @cached_property
    def operands(self) -> list[str]:
        """Names of the operands; cached, because every sum over the program reads them."""
        return _OPERAND.findall(self.text.partition("), ")[0])

    @property
    def bytes(self) -> int:
        """Size of everything it makes."""
        return sum(array.bytes for array in self.results)


@dataclass
class Program:
    """Computations by name, and how often each runs in one run of the program."""

    computations: dict[str, list[Line]] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)
    endless: int = 0
    """Number of loops whose length XLA does not know: their bodies count once."""

    def lines(self) -> Iterator[tuple[Line, int]]:
        """Yield every operation outside fusions, with how often it runs."""
        for name, lines in self.computations.items():
            times = self.runs.get(name, 0)
            if times:
                yield from ((line, times) for line in lines)


def only_slices(program: Program, lines: list[Line], made: Line) -> bool:
    """Return whether only slices of a line's result are used, also in fusions: each device needs only its own part."""
    users = [line for line in lines if made.name in line.operands]
    return bool(users) and all(_slices(program, user, made.name) for user in users)


def _slices(program: Program, user: Line, name: str) -> bool:
    if user.kind == "dynamic-slice":
        return True
    fused = _FUSED.search(user.text) if user.kind == "fusion" else None
    inside = program.computations.get(fused[1], []) if fused else []
    place = user.operands.index(name)
    parameter = next((line for line in inside if line.kind == "parameter" and line.text.startswith(f"{place})")), None)
    if parameter is None:
        return False
    views = {parameter.name} | {line.name for line in inside if line.kind in _TURNS and parameter.name in line.operands}
    inner = [line for line in inside if views & set(line.operands) and line.name not in views]
    return bool(inner) and all(line.kind == "dynamic-slice" for line in inner)


def bits_of(dtype: str) -> int:
    """Return the bits of one element: `bf16` 16, `pred` 8, `f8e4m3fn` 8, `s4` 4."""
    if dtype == "pred":
        return 8
    found = _BITS.search(dtype)
    return int(found[1]) if found else 0


def read_program(text: str) -> Program:
    """Parse the text that `compiled.as_text()` returns."""
    program, current, entry = Program(), "", ""
    for raw in text.splitlines():
        header = _HEADER.match(raw)
        if header is not None:
            current = header[2]
            entry = current if header[1] else entry
            program.computations[current] = []
            continue
        line = _LINE.match(raw)
        if line is not None and current:
            program.computations[current].append(_read_line(line[1], line[2]))
    _count_runs(program, entry)
    return program


def _read_line(name: str, rest: str) -> Line:
    result, kind, after = _split(rest)
    source = _NAME.search(after)
    arrays = tuple(
        Array(found[1], tuple(int(size) for size in found[2].split(",") if size))
        for found in _ARRAY.finditer(result)
        if found[1] != "token"
    )
    return Line(name, kind, arrays, source[1] if source else "", after)


def _split(rest: str) -> tuple[str, str, str]:
    """Cut `result-type kind(operands), attributes` into its three parts."""
    if rest.startswith("("):
        depths = accumulate((letter == "(") - (letter == ")") for letter in rest)
        end = next((place for place, depth in enumerate(depths) if depth == 0), len(rest) - 1) + 1
        result, rest = rest[:end], rest[end:]
    else:
        result, _, rest = rest.partition(" ")
    found = _OPERATION.search(rest)
    return (result, found[1], rest[found.end() :]) if found else (result, "", rest)


def _count_runs(program: Program, entry: str) -> None:
    """Follow calls from the entry; a loop's body runs as often as the loop does. Fusions count as one operation."""
    pending = [(entry, 1)]
    while pending:
        name, times = pending.pop()
        program.runs[name] = program.runs.get(name, 0) + times
        for line in program.computations.get(name, []):
            if line.kind in {"while", "call", "conditional", "async-start"}:
                trips = _trips(program, line)
                pending.extend((called, times * trips) for called in _called(line))


def _called(line: Line) -> Iterator[str]:
    for found in _CALLED.finditer(line.text):
        names = (found[1] or found[2]).split(",")
        yield from (name.strip().removeprefix("%") for name in names if name.strip())


def _trips(program: Program, line: Line) -> int:
    if line.kind != "while":
        return 1
    found = _TRIPS.search(line.text)
    if found is None:
        program.endless += 1
        return 1
    return int(found[1])


def plain_source(source: str) -> str:
    """Shorten `jit(step)/transpose(jvp(lm))/while/body/ff/dot_general` to the names of layers: `lm/ff/dot_general`.

    Adds `(backward)` or `(recomputed)` where the name says so.
    """
    note = " (recomputed)" if "rematted_computation" in source else " (backward)" if "transpose(" in source else ""
    whole = max(source.split(":"), key=len)  # XLA joins the names of merged operations by colons
    bare = _WRAPPED.sub("", whole).replace("(", "").replace(")", "")
    parts = [part for part in bare.split("/") if part not in _NO_PLACES and "->" not in part and "." not in part]
    return "/".join(dict.fromkeys(parts[-5:])) + note if parts else ""
