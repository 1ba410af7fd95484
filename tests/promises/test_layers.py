"""The floors of the house: every import points down, two rooms never import each other, heavy packages come late."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "xdpx"

_spec = importlib.util.spec_from_file_location("layers", Path(__file__).with_name("layers.py"))
assert _spec
assert _spec.loader
_layers = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_layers)
FLOOR = {room: level for level, rooms in enumerate(_layers.FLOORS) for room in rooms}

HEAVY = {"torch", "jax", "tensorflow", "pandas", "transformers", "matplotlib", "sklearn"}
LIGHT_ROOMS = {
    "utils",
    "logger",
    "config",
    "loaders",
    "tokenizers",
    "processors",
    "datasets",
    "inference",
    "training",
    "commands",
    "search",
    "tuning",
    "board",
    "serving",
}


def room_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_names(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{a.name}" if node.module == "xdpx" else str(node.module) for a in node.names]
    return [a.name for a in node.names]


def named_and_typed(node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> list[tuple[str, str | None]]:
    """Return the name and the annotation of each parameter of a function, or declared attribute of a class."""
    if isinstance(node, ast.ClassDef):
        declared = [each for each in node.body if isinstance(each, ast.AnnAssign)]
        return [(ast.unparse(each.target), ast.unparse(each.annotation)) for each in declared]
    given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return [(each.arg, ast.unparse(each.annotation) if each.annotation else None) for each in given]


class Parsed:
    """What the tests here ask of a file, at any depth of it.

    Attributes:
        declared: (line, name, annotation) of every parameter and attribute.
        strings: (line, text) of every string but docstrings.
    """

    def __init__(self, source: str) -> None:
        self.imports: list[ast.Import | ast.ImportFrom] = []
        self.declared: list[tuple[int, str, str | None]] = []
        self.strings: list[tuple[int, str]] = []
        docstrings = set[int]()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                self.imports.append(node)
            elif isinstance(node, ast.Expr):  # which is met before what it holds
                docstrings.add(id(node.value))
            elif isinstance(node, ast.Constant):
                if isinstance(node.value, str) and id(node) not in docstrings:
                    self.strings.append((node.lineno, node.value))
            elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                self.declared += [(node.lineno, *each) for each in named_and_typed(node)]


@functools.cache
def parsed(source: str) -> Parsed:
    """Return what is asked of a file, which is parsed once for all the tests here."""
    return Parsed(source)


def rooms_imported_by(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, room) for each `xdpx.<room>` that an import names, at any depth of the file."""
    for node in parsed(source).imports:
        for name in imported_names(node):
            root, _, rest = name.partition(".")
            if root == "xdpx" and rest and not rest.startswith("__"):
                yield node.lineno, rest.split(".")[0]


def upward_imports(source: str, home: str) -> list[str]:
    """Name each import of `source`, standing in room `home`, that does not point to a lower floor."""
    return [
        f"line {line}: `{home}` (floor {FLOOR[home]}) may not import `{room}` (floor {FLOOR[room]})."
        " Move the shared part down, or pass it in as an argument."
        for line, room in rooms_imported_by(source)
        if room != home and FLOOR[room] >= FLOOR[home]
    ]


def module_level_imports(source: str) -> set[str]:
    return {
        name.split(".")[0] for node in parsed(source).imports if not node.col_offset for name in imported_names(node)
    }


SOURCES = {file: file.read_text(encoding="utf-8") for file in sorted(PACKAGE.rglob("*.py"))}
FILES = [file for file in SOURCES if room_of(file) != "__init__"]


def test_imports_point_down() -> None:
    faults = {str(file.relative_to(REPOSITORY)): upward_imports(SOURCES[file], room_of(file)) for file in FILES}
    assert not {file: found for file, found in faults.items() if found}


def test_an_arrow_that_points_up_is_found() -> None:
    assert upward_imports("from xdpx.training.loop import fit", "datasets")
    assert upward_imports("def f():\n    from xdpx.models import models", "loaders")
    assert not upward_imports("from xdpx.utils import io", "datasets")


def test_light_rooms_import_no_heavy_package_at_module_level() -> None:
    light = [file for file in FILES if room_of(file) in LIGHT_ROOMS]
    heavy = {str(file.relative_to(REPOSITORY)): module_level_imports(SOURCES[file]) & HEAVY for file in light}
    assert not {file: found for file, found in heavy.items() if found}, "import these where they are used"


def test_a_heavy_import_at_module_level_is_found() -> None:
    assert module_level_imports("import torch.nn\ndef f():\n    import jax") & HEAVY == {"torch"}


MODULES = {".".join(file.relative_to(REPOSITORY).with_suffix("").parts): file for file in SOURCES}


def modules_imported_by(source: str) -> set[str]:
    """Return the files of xdpx that a file names, inside functions and for types alike.

    Python itself minds only imports at module level. But an import put off into a function or for a type is how a
    circle is usually hidden: the two files still cannot be read, tested or moved alone. So all of them count here.
    """
    found = set()
    for node in parsed(source).imports:
        if isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
        else:
            found |= {alias.name for alias in node.names}
    return found & MODULES.keys()


def circle(imports: dict[str, set[str]]) -> list[str]:
    """Return the names along one circle, [] when there is none."""
    open_names, done = list[str](), set[str]()

    def follow(name: str) -> list[str]:
        if name in open_names:
            return [*open_names[open_names.index(name) :], name]
        if name in done:
            return []
        open_names.append(name)
        found = next((way for other in sorted(imports.get(name, ())) if (way := follow(other))), [])
        open_names.pop()
        done.add(name)
        return found

    return next((way for name in sorted(imports) if (way := follow(name))), [])


def test_no_two_files_import_each_other_in_a_circle() -> None:
    assert circle({name: modules_imported_by(SOURCES[file]) for name, file in MODULES.items()}) == []


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert circle({"a": {"b", "c"}, "b": {"c"}}) == []
    assert modules_imported_by("def f():\n    from xdpx.utils.io_utils import io") == {"xdpx.utils.io_utils"}


OBJECTS = {
    "trainer": "trainer",
    "callback_handler": "trainer",
    "experiment": "experiments",
    "tuner": "tuning",
    "launcher": "launch",
}
"""Names under which an object of a room is handed around."""

UNTYPED = {None, "Any", "object"}


def hidden_arrows(source: str) -> list[str]:
    """Name each object of a room that is taken without a type, so that nobody sees what of it is used."""
    return [
        f"line {line}: `{name}` is an object of {OBJECTS[name]}, typed {kind}. Take what you need of it."
        for line, name, kind in parsed(source).declared
        if name in OBJECTS and kind in UNTYPED
    ]


def test_no_object_of_a_room_is_handed_around_without_a_type() -> None:
    faults = {str(file.relative_to(REPOSITORY)): hidden_arrows(SOURCES[file]) for file in FILES}
    assert not {file: found for file, found in faults.items() if found}


def test_an_object_without_a_type_is_found() -> None:
    assert hidden_arrows("class Loss:\n    def __init__(self, trainer: Any) -> None: ...")
    assert hidden_arrows("async def f(*, experiment): ...")
    assert hidden_arrows("class Stretch:\n    trainer: Any")
    assert not hidden_arrows("def f(trainer: Searching, name: Any) -> None: ...")


TABLES = {"config/registry.py", "config/builtin_names.py"}
"""Where names of modules stand, besides the `__init__` of a room."""


def rooms_named_by(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, room) for each `xdpx.<room>` in a string: neither in a docstring, nor what people type to start."""
    for line, text in parsed(source).strings:
        for room in re.findall(r"(?<!python -m )\bxdpx\.(\w+)", text):
            yield line, room


def names_of_higher_rooms(source: str, home: str) -> list[str]:
    return [
        f"line {line}: a string names `{room}`, which is not a lower room. Import it there, or let it register itself."
        for line, room in rooms_named_by(source)
        if room != home and FLOOR.get(room, -1) >= FLOOR[home]
    ]


def test_no_string_names_a_higher_room_outside_the_tables() -> None:
    plain = [file for file in FILES if file.name != "__init__.py" and str(file.relative_to(PACKAGE)) not in TABLES]
    faults = {str(file.relative_to(REPOSITORY)): names_of_higher_rooms(SOURCES[file], room_of(file)) for file in plain}
    assert not {file: found for file, found in faults.items() if found}


def test_a_string_that_names_a_higher_room_is_found() -> None:
    assert names_of_higher_rooms('HOME = "xdpx.trainer.trainer"', "losses")
    assert names_of_higher_rooms('def f(name):\n    return import_module(f"xdpx.tasks.{name}")', "config")
    assert not names_of_higher_rooms('"""Read by xdpx.trainer."""\nHOME = "xdpx.utils.io_utils"', "losses")


def test_no_file_has_a_name_that_the_house_forbids() -> None:
    names = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*") if "__pycache__" not in path.parts}
    assert "utils/io.py" not in names, "importing xdpx.utils.io as a module would overwrite the `io` object"
    assert not [name for name in names if name.split("/")[-1] in {"torch", "jax", "helper.py", "helpers.py"}]


@pytest.mark.parametrize(
    "module", ["xdpx", "xdpx.run", "xdpx.commands.io", "xdpx.utils.pdb", "xdpx.trainer.hooks.builtin"]
)
def test_doors_open_without_heavy_packages(module: str) -> None:
    code = f"import sys, {module}; print(sorted(set(sys.modules) & {HEAVY!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=True)
    assert done.stdout.strip() == "[]"
