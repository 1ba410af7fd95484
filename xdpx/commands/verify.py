"""Check everything committed below some folders against its manifest: sizes and hashes.

Usage: x-script verify ROOT... [--quick]

  ROOT      a run, a folder of preprocessed data, or any folder above them
  --quick   compare sizes only

Prints one line for each problem, and a summary. Exit code 1 if there is any.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdpx.commands.script_arguments import need_paths, read_arguments
from xdpx.utils import io
from xdpx.utils.commit import manifests, problems

NAME = "verify"
USAGE = "x-script verify ROOT... [--quick]"


def main(argv: Sequence[str]) -> int:
    """Check every manifest and print the problems."""
    arguments = read_arguments(NAME, argv, flags=["--quick"])
    need_paths(NAME, arguments, USAGE)
    checked = broken = 0
    for folder, name in _committed(arguments.paths):
        wrong = problems(folder, name, hashes="--quick" not in arguments.flags)
        checked, broken = checked + 1, broken + bool(wrong)
        for text in wrong:
            print(f"{io.join(folder, name)}: {text}")
    if not checked:
        print(f"nothing committed below {', '.join(arguments.paths)}: no manifest was found")
        return 1
    print(f"{checked} checked, {broken} broken")
    return 1 if broken else 0


def _committed(roots: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (folder, name) of every manifest below `roots`. Raises FileNotFoundError for a missing root."""
    for root in roots:
        if not io.isdir(root):
            raise FileNotFoundError(f"{root}: no such folder.")
        inside = io.listdir(root, recursive=True, full_path=True)
        for folder in sorted({io.parent(path) for path in inside if path.endswith(".manifest.json")}):
            yield from ((folder, name) for name in sorted(manifests(folder)))
