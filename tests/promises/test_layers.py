"""The floors of the house: every import points down, two rooms never import each other, heavy packages come late."""

from __future__ import annotations

import ast
import importlib.util
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
    "commands",
}
LIGHT_FILES = {f"trainer/{name}.py" for name in ("__init__", "loop", "progress", "preemption")}
"""What x-train needs of a room that is heavy otherwise, before it has read its config."""


def room_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{a.name}" if node.module == "xdpx" else str(node.module) for a in node.names]
    return [a.name for a in node.names] if isinstance(node, ast.Import) else []


def rooms_imported_by(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, room) for each `xdpx.<room>` that an import names, at any depth of the file."""
    for node in ast.walk(ast.parse(source)):
        for name in imported_names(node):
            root, _, rest = name.partition(".")
            if root == "xdpx" and rest and not rest.startswith("__"):
                yield node.lineno, rest.split(".")[0]  # type: ignore[attr-defined]


def upward_imports(source: str, home: str) -> list[str]:
    """Name each import of `source`, standing in room `home`, that does not point to a lower floor."""
    return [
        f"line {line}: `{home}` (floor {FLOOR[home]}) may not import `{room}` (floor {FLOOR[room]})."
        " Move the shared part down, or pass it in as an argument."
        for line, room in rooms_imported_by(source)
        if room != home and FLOOR[room] >= FLOOR[home]
    ]


def module_level_imports(source: str) -> set[str]:
    tree = ast.parse(source)
    return {name.split(".")[0] for node in tree.body for name in imported_names(node)}


FILES = sorted(file for file in PACKAGE.rglob("*.py") if room_of(file) != "__init__")


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_imports_point_down(file: Path) -> None:
    faults = upward_imports(file.read_text(encoding="utf-8"), room_of(file))
    assert not faults, f"{file.relative_to(REPOSITORY)}: {faults}"


def test_an_arrow_that_points_up_is_found() -> None:
    assert upward_imports("from xdpx.trainer.loop import fit", "datasets")
    assert upward_imports("def f():\n    from xdpx.models import models", "loaders")
    assert not upward_imports("from xdpx.utils import io", "datasets")


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_light_rooms_import_no_heavy_package_at_module_level(file: Path) -> None:
    if room_of(file) in LIGHT_ROOMS or str(file.relative_to(PACKAGE)) in LIGHT_FILES:
        heavy = module_level_imports(file.read_text(encoding="utf-8")) & HEAVY
        assert not heavy, f"{file.relative_to(REPOSITORY)} imports {heavy} at module level; import it where it is used."


MODULES = {".".join(file.relative_to(REPOSITORY).with_suffix("").parts): file for file in PACKAGE.rglob("*.py")}


def modules_imported_by(source: str) -> set[str]:
    """Give the files of xdpx that a file names, inside functions and for types alike.

    Python itself minds only imports at module level. But an import put off into a function or for a type is how a
    circle is usually hidden: the two files still cannot be read, tested or moved alone. So all of them count here.
    """
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & MODULES.keys()


def circle(imports: dict[str, set[str]]) -> list[str]:
    """Give the names along one circle, [] when there is none."""
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
    sources = {name: file.read_text(encoding="utf-8") for name, file in MODULES.items()}
    assert circle({name: modules_imported_by(source) for name, source in sources.items()}) == []


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert circle({"a": {"b", "c"}, "b": {"c"}}) == []
    assert modules_imported_by("def f():\n    from xdpx.utils.io_utils import io") == {"xdpx.utils.io_utils"}


def test_no_file_has_a_name_that_the_house_forbids() -> None:
    names = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*") if "__pycache__" not in path.parts}
    assert "utils/io.py" not in names, "importing xdpx.utils.io as a module would overwrite the `io` object"
    assert not [name for name in names if name.split("/")[-1] in {"torch", "jax", "helper.py", "helpers.py"}]


@pytest.mark.parametrize("module", ["xdpx", "xdpx.run", "xdpx.commands.io", "xdpx.utils.pdb"])
def test_doors_open_without_heavy_packages(module: str) -> None:
    code = f"import sys, {module}; print(sorted(set(sys.modules) & {HEAVY!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=True)
    assert done.stdout.strip() == "[]"
