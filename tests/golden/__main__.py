"""`python -m tests.golden write|check [NAME ...]`; see the package's docstring."""

from __future__ import annotations

import sys

from tests.golden import __doc__ as usage
from tests.golden.doors import DOORS


def main(words: list[str]) -> int:
    """Write or check the runs whose door or name contains one of the words (default: all), and return the exit code."""
    if not words or words[0] not in {"write", "check"}:
        sys.stderr.write(f"{usage}")
        return 2
    command, *wanted = words
    count, differences = 0, []
    for door in DOORS:
        names = [name for name in door.runs if not wanted or any(word in f"{door.name}: {name}" for word in wanted)]
        count += len(names)
        if names and command == "write":
            door.write(names)
        elif names:
            differences += [f"{door.name}: {line}" for line in door.differences(names)]
    told = f"{count} runs written" if command == "write" else f"{count} runs checked, {len(differences)} differences"
    sys.stdout.write("".join(f"{line}\n" for line in (*differences, told)))
    return 1 if differences or not count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
