"""Write `expected/*.json` by running the scripts with the original: `record.py [NAME ...]`. Needs `accelerate`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
OF_THE_CLOCK = ("_runtime", "_per_second", "_preparation_time")


def without_times(value: Any) -> Any:
    """Return the value without the parts that depend on the clock."""
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if not key.endswith(OF_THE_CLOCK)}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def main() -> None:
    """Run the scripts, and store each outcome next to them."""
    with tempfile.TemporaryDirectory() as folder:
        line = [sys.executable, str(HERE / "run_scripts.py"), "transformers", folder, *sys.argv[1:]]
        subprocess.run(line, check=True)
        for outcome in sorted(Path(folder).iterdir()):
            failure = outcome / "failure.txt"
            if failure.exists():
                raise SystemExit(f"{outcome.name} fails with the original:\n{failure.read_text(encoding='utf-8')}")
            told = without_times(json.loads((outcome / "outcome.json").read_text(encoding="utf-8")))
            text = json.dumps(told, separators=(",", ":"), sort_keys=True)
            (HERE / "expected" / f"{outcome.name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
