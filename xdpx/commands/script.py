"""`x-script NAME ...`: run a script that comes with XDPX, or one of yours in ./user/scripts.

Usage: x-script [NAME [arguments...]]    `x-script` alone lists them; `x-script NAME --help` for one
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from xdpx.config.faults import ConfigError, Fault, unknown_name
from xdpx.logger import log
from xdpx.utils import io

SHIPPED = (
    "aggregate_meta",
    "aggregate_results",
    "bce_threshold",
    "calibrate",
    "clean_checkpoints",
    "combine_profile",
    "compare_runs",
    "confusion_matrix",
    "cut_file",
    "diff_data",
    "diff_meta",
    "diff_params",
    "doctor",
    "export_hf",
    "export_int8",
    "export_onnx",
    "export_openvino",
    "export_pt2",
    "export_pt",
    "export_tf",
    "export_torchscript",
    "first_difference",
    "from_maxtext",
    "gather_shards",
    "pgle_profile",
    "pkm_init",
    "prune_heads",
    "replay_nan",
    "run_profiling",
    "serve",
    "sub_data",
    "summarise_seeds",
    "verify",
)
"""Scripts in this folder, which an installed XDPX includes; each has `main(argv) -> int`."""

ANSWERING = frozenset({"calibrate", "compare_runs", "summarise_seeds"})
"""Scripts that print one JSON object instead of a table with --json."""
CLI_MAIN = "cli_main"
"""Main function of scripts of the first XDPX; it gets the name of the script before the words."""

MAINS = (CLI_MAIN, "main")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_ACTING = (ast.Call, ast.For, ast.While, ast.With, ast.Raise, ast.Assert, ast.Delete, ast.Await)
USER_FOLDER = os.path.join("user", "scripts")


def main(argv: Sequence[str]) -> int:
    """Run the script named by the first word with the words after it, and return its exit code."""
    if not argv or argv[0] in {"-h", "--help"}:
        _print_list()
        return 0
    name, words = argv[0], list(argv[1:])
    files = script_files()
    if name in files:
        if name in SHIPPED:
            log.warning(f"{files[name]} is run, and not the script '{name}' that ships with xdpx.")
        return _run_file(files[name], words)
    if name not in SHIPPED:
        raise ConfigError("x-script", [unknown_name("script", name, [*SHIPPED, *files])])
    if {"-h", "--help"} & set(words):
        print(_docstring(_source(name)).strip())
        return 0
    own = [word for word in words if word not in {"--json", "--quiet"}]  # handled for all commands alike
    return _shipped(name)([*own, "print_json=true"] if "--json" in words and name in ANSWERING else own)


def _shipped(name: str) -> Callable[[Sequence[str]], int]:
    """Return the main function of a shipped script, importing only that one."""
    from importlib import import_module

    chosen: Callable[[Sequence[str]], int] = import_module(f"xdpx.commands.{name}").main
    return chosen


def script_files() -> dict[str, str]:
    """Return {name: path} of the scripts that are files: the repository's own (not those shipped), then the user's."""
    beside_package = Path(__file__).resolve().parents[2] / "scripts"
    folders = [str(beside_package), USER_FOLDER] if (beside_package.parent / "pyproject.toml").is_file() else []
    found = {}
    for folder in folders or [USER_FOLDER]:
        found.update(dict(_scripts_in(folder)))
    return found


def _scripts_in(folder: str) -> Iterator[tuple[str, str]]:
    if not io.isdir(folder):
        return
    for name in sorted(io.listdir(folder)):
        stem, extension = os.path.splitext(name)
        is_own = os.path.normpath(folder) == USER_FOLDER
        if extension == ".py" and not stem.startswith("_") and (is_own or stem not in SHIPPED):
            yield stem, os.path.join(folder, name)


def _run_file(path: str, words: list[str]) -> int:
    """Run a file as `python path words` would, in this process, or its main function. Return its exit code.

    Raises:
        ConfigError: the file only defines things, and no main function.
    """
    import runpy

    name = _uncalled_main(path)
    before, sys.argv = sys.argv, [path, *words]
    folder = os.path.dirname(os.path.abspath(path))
    sys.path.insert(0, folder)  # what lies beside it can be imported
    try:
        if name is not None:
            return _call(path, name, words)
        runpy.run_path(path, run_name="__main__")
    except SystemExit as ending:
        return _exit_code(ending)
    finally:
        sys.argv = before
        if folder in sys.path:
            sys.path.remove(folder)
    return 0


def _uncalled_main(path: str) -> str | None:
    """Return the name of the main function that a file defines and does not call itself; None if it runs by itself.

    Raises:
        ConfigError: the file does neither, so that running it would do nothing.
    """
    try:
        with io.open(path, "rb") as source:
            tree = ast.parse(source.read())
    except (SyntaxError, ValueError):
        return None  # running it tells the line
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    statements = [node for node in tree.body if not isinstance(node, (*_DEFINITIONS, ast.Import, ast.ImportFrom))]
    nodes = [node for each in statements for node in ast.walk(each)]
    if any("__name__" in _names(node.test) for node in nodes if isinstance(node, ast.If)):
        return None
    name = next((each for each in MAINS if each in defined), None)
    if name is not None:
        return None if any(name in _names(node) for node in nodes if isinstance(node, ast.Call)) else name
    if not any(isinstance(node, _ACTING) for node in nodes):
        problem = f"{path} defines neither cli_main nor main, and runs nothing else."
        raise ConfigError("x-script", [Fault("script", problem, "Define main(argv), which gets the words behind it.")])
    return None


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _call(path: str, name: str, words: list[str]) -> int:
    """Import a file as a module and call its main function; return what that returns if it is a number, else 0."""
    from importlib.util import module_from_spec, spec_from_file_location
    from inspect import signature

    stem = os.path.splitext(os.path.basename(path))[0]
    spec = spec_from_file_location(f"xdpx_script_{stem}", path)
    if spec is None or spec.loader is None:
        raise OSError(f"{path}: cannot be imported.")
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, name)
    argv = [stem, *words] if name == CLI_MAIN else words
    code = function(argv) if signature(function).parameters else function()
    return int(code) if isinstance(code, int) else 0


def _exit_code(ending: SystemExit) -> int:
    if ending.code is None or isinstance(ending.code, int):
        return int(ending.code or 0)
    print(ending.code, file=sys.stderr)
    return 1


def _print_list() -> None:
    print((__doc__ or "").strip(), end="\n\n")
    paths = {**{name: _source(name) for name in SHIPPED}, **script_files()}
    width = max(map(len, paths))
    for name, path in sorted(paths.items()):
        print(f"  {name:<{width}}  {_first_line(path)}")


def _source(name: str) -> str:
    return str(Path(__file__).with_name(f"{name}.py"))


def _first_line(path: str) -> str:
    return _docstring(path).strip().partition("\n")[0] or "(no description)"


def _docstring(path: str) -> str:
    """Return the docstring of a file without running it."""
    try:
        with io.open(path, encoding="utf-8") as source:
            return ast.get_docstring(ast.parse(source.read())) or ""
    except (OSError, SyntaxError, ValueError):
        return "(cannot be read)"
