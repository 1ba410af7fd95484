"""`x-script NAME ...`: run a script that comes with XDPX, or one of yours in ./user/scripts.

Usage: x-script [NAME [arguments...]]    `x-script` alone lists them; `x-script NAME --help` for one
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from xdpx.config.faults import ConfigError, unknown_name
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
    """Run a file as `python path words` would, in this process. Return its exit code."""
    import runpy

    before, sys.argv = sys.argv, [path, *words]
    folder = os.path.dirname(os.path.abspath(path))
    sys.path.insert(0, folder)  # what lies beside it can be imported
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit as ending:
        return _exit_code(ending)
    finally:
        sys.argv = before
        if folder in sys.path:
            sys.path.remove(folder)
    return 0


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
