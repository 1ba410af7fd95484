"""Run the scripts in `of_libraries` with a Trainer: `run_libraries.py xdpx|transformers FOLDER NAME ...`.

They use libraries whose classes derive from the Trainer of transformers; with `xdpx`, ours replaces it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from run_scripts import run

HERE = Path(__file__).parent


def main() -> None:
    """Run the named scripts, each in its own folder."""
    library, folder, *names = sys.argv[1:]
    sys.argv = sys.argv[:1]  # scripts must not see our arguments
    sys.path.insert(0, str(HERE / "upstream"))
    if library == "xdpx":
        import xdpx

        xdpx.stand_in_for_transformers()
    for name in names:
        text = (HERE / "of_libraries" / f"{name}.py").read_text(encoding="utf-8")
        run(name, text, Path(folder).resolve() / name)


if __name__ == "__main__":
    main()
