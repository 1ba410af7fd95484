"""Scripts written for the original Trainer run with ours: their import line is exchanged, the outcome is the same.

What the original made of them lies in `expected/`, written by record.py. Numbers agree to 1e-6.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in (HERE / "scripts").glob("*.py"))
OF_THE_CLOCK = ("_runtime", "_per_second", "_preparation_time", "_wait_share")
TOLERANCE = 1e-6


def differences(expected: Any, found: Any, at: str = "") -> Iterator[str]:
    """Name every place where two outcomes differ. What ours logs of the clock beyond the original is no difference."""
    if isinstance(expected, list) and isinstance(found, list):
        found = [each for each in found if each in expected or not str(each).endswith(OF_THE_CLOCK)]
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in sorted(set(expected) | {name for name in found if not name.endswith(OF_THE_CLOCK)}):
            if key in expected and key in found:
                yield from differences(expected[key], found[key], f"{at}.{key}")
            else:
                yield f"{at}.{key}: only in {'the original' if key in expected else 'ours'}"
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for number, pair in enumerate(zip(expected, found, strict=True)):
            yield from differences(*pair, f"{at}[{number}]")
    elif isinstance(expected, float) and isinstance(found, int | float):
        if not math.isclose(expected, found, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            yield f"{at}: the original has {expected!r}, ours has {found!r}"
    elif expected != found:
        yield f"{at}: the original has {expected!r}, ours has {found!r}"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which all scripts have run, one after the other, in a process of their own."""
    folder = tmp_path_factory.mktemp("scripts")
    line = [sys.executable, "-W", "ignore", str(HERE / "run_scripts.py"), "xdpx", str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_script_for_the_original_ends_as_with_the_original(name: str, outcomes: Path) -> None:
    failure = outcomes / name / "failure.txt"
    assert not failure.exists(), failure.read_text(encoding="utf-8")
    expected = json.loads((HERE / "expected" / f"{name}.json").read_text(encoding="utf-8"))
    found = json.loads((outcomes / name / "outcome.json").read_text(encoding="utf-8"))
    assert not list(differences(expected, found))
