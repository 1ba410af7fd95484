"""One door to the disk, one door to trust, and no way to the shell."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "xdpx"
DISK = {"utils/io_utils.py", "utils/local_files.py"}
"""The only files that may open, rename or remove a file on the local disk."""
TRUST = {"checkpoints/trusted.py"}
"""The only file that may unpickle."""
NAMED_IMPORTS = {
    "__init__.py",
    "commands/script.py",
    "config/catalogue.py",
    "config/registry.py",
    "config/user_modules.py",
    "datasets/inputs/libraries.py",
    "experiments/registry.py",
    "inference/formats.py",
    "models/pytorch/deployed.py",
    "models/pytorch/preparing.py",
    "optimizers/pytorch/families.py",
    "reports/trackers/choosing.py",
    "reports/trackers/tensorboard.py",
    "tasks/__init__.py",
    "tasks/spmd/paired.py",
    "tokenizers/nltk.py",
    "trainer/standing_in.py",
    "tuning/executors/ray.py",
}
"""Files that import by a name: shipped tables, packages that may be missing, and the user's own modules; never a name
found in a data file."""

OS_CALLS = {"rename", "replace", "remove", "unlink", "rmdir", "makedirs", "mkdir", "truncate", "link", "symlink"}


def dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def calls(file: Path) -> Iterator[tuple[int, str, ast.Call]]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield node.lineno, dotted(node.func), node


def touches_disk(name: str, call: ast.Call) -> bool:
    root, _, last = name.rpartition(".")
    looks_for_programs = name == "shutil.which"
    return (
        name == "open"
        or (root == "os" and last in {*OS_CALLS, "open"})
        or (root == "shutil" and not looks_for_programs)
    )


def unpickles(name: str, call: ast.Call) -> bool:
    return name in {"torch.load", "pickle.load", "pickle.loads", "eval", "exec", "yaml.load", "yaml.unsafe_load"} or (
        name.endswith(".load") and any(k.arg == "allow_pickle" for k in call.keywords)
    )


def imports_by_name(name: str, call: ast.Call) -> bool:
    return name.split(".")[-1] in {"import_module", "__import__", "spec_from_file_location"}


def uses_a_shell(name: str, call: ast.Call) -> bool:
    return name in {"os.system", "os.popen"} or any(k.arg == "shell" for k in call.keywords)


RULES: list[tuple[str, Callable[[str, ast.Call], bool], set[str]]] = [
    ("opens a file beside io_utils", touches_disk, DISK),
    ("unpickles outside checkpoints/trusted.py", unpickles, TRUST),
    ("imports by name", imports_by_name, NAMED_IMPORTS),
    ("uses a shell", uses_a_shell, set()),
]


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    """Return what breaks each rule; every file is read once for all of them."""
    broken = defaultdict[str, list[str]](list)
    for file in sorted(PACKAGE.rglob("*.py")):
        place = str(file.relative_to(PACKAGE))
        for line, name, call in calls(file):
            for fault, rule, allowed in RULES:
                if place not in allowed and rule(name, call):
                    broken[fault].append(f"{place}:{line} {name}")
    return broken


@pytest.mark.parametrize("fault", [rule[0] for rule in RULES])
def test_only_the_named_doors_are_used(fault: str, found: dict[str, list[str]]) -> None:
    assert found[fault] == []
