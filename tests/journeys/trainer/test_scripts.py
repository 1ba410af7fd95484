"""Scripts written for the original Trainer run with ours: their import line is exchanged, the outcome is the same.

What the original made of them lies in `expected/`, written by record.py. Numbers agree to 1e-6.
"""

from __future__ import annotations

import importlib.util
import json
import math
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import xdpx
from tests import tiers
from tests.processes import environment
from xdpx.reports.metric_lines import METRICS_FILE
from xdpx.training.status import STATUS_FILE

HERE = Path(__file__).parent
NAMES = tiers.some(
    sorted(path.stem for path in (HERE / "scripts").glob("*.py")),
    [
        *("causal_lm", "command_line", "custom_callback", "document_era", "early_stopping", "files_left"),
        *("iterable_stream", "metrics", "override_points", "own_optimizer", "resume", "seq2seq"),
        *("several_eval_sets", "several_labels"),
    ],
)
"""The short form leaves out a toy, rows grouped by length as in document_era, a plain classifier as in the style of
upstream, and weights of classes, which examples/trainer has too."""
OF_THE_CLOCK = ("_runtime", "_per_second", "_preparation_time", "_wait_share")
TOLERANCE = 1e-6
OF_EVERY_TRAINING = (STATUS_FILE, METRICS_FILE)
"""Files that ours leaves in the output folder."""
UPSTREAM = HERE / "upstream"
IN_THE_STYLE_OF_UPSTREAM = sorted(path.stem for path in UPSTREAM.glob("*.py") if path.stem != "small_things")
OF_LIBRARIES = {"sft": "trl", "dpo": "trl", "sentences": "sentence_transformers", "few_shot": "setfit"}
"""What derives from the Trainer of transformers: name of the script, and the package it needs (extra `clients`)."""
EXACT = ("loss", "grad_norm", "learning_rate", "epoch", "step", "train_loss", "total_flos")
"""What is logged of training is the same to the last digit; sums of an evaluation are in double precision here."""


def differences(expected: Any, found: Any, at: str = "") -> Iterator[str]:
    """Name every place where two outcomes differ. What ours logs or leaves beyond the original is not a difference."""
    if isinstance(expected, list) and isinstance(found, list):
        found = [
            each for each in found if each in expected or not str(each).endswith((*OF_THE_CLOCK, *OF_EVERY_TRAINING))
        ]
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
    line = [sys.executable, "-W", "ignore", str(HERE / "run_scripts.py"), "xdpx", str(folder), *NAMES]
    done = subprocess.run(line, env=environment(), capture_output=True, text=True, check=False)
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


def outcome(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a script as a program, in this process but in a folder of its own, and return what it told."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(UPSTREAM))
    monkeypatch.delitem(sys.modules, "small_things", raising=False)  # its dice start over
    runpy.run_path(str(UPSTREAM / f"{name}.py"), run_name="__main__")
    return json.loads((folder / "outcome.json").read_text(encoding="utf-8"))


def same_digits(ours: Any, theirs: Any) -> None:
    """Hold two outcomes together: what is logged of training to the last digit."""
    assert len(ours["history"]) == len(theirs["history"]) >= 4
    for one, other in zip(ours["history"], theirs["history"], strict=True):
        assert {key: one[key] for key in EXACT if key in one} == {key: other[key] for key in EXACT if key in other}
    assert not list(differences(without_times(theirs), ours))


@pytest.mark.parametrize("name", IN_THE_STYLE_OF_UPSTREAM)
def test_a_script_in_the_style_of_upstream_logs_the_same_digits(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("accelerate")
    pytest.importorskip("datasets")
    public = {each: getattr(xdpx, each) for each in xdpx.__all__ if each != "__version__"}
    transformers = sys.modules["transformers"]  # importing it by name may give another one
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    theirs = outcome(name, tmp_path / "theirs", monkeypatch)
    for each in public.keys() & set(dir(transformers)):
        monkeypatch.setattr(transformers, each, public[each])
    same_digits(outcome(name, tmp_path / "ours", monkeypatch), theirs)


def without_times(value: Any) -> Any:
    """Leave out what a clock decides."""
    if isinstance(value, dict):
        return {key: without_times(each) for key, each in value.items() if not key.endswith(OF_THE_CLOCK)}
    return [without_times(each) for each in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def of_libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which all scripts of installed libraries have run, on the original and on ours."""
    folder = tmp_path_factory.mktemp("libraries")
    names = [name for name, package in OF_LIBRARIES.items() if importlib.util.find_spec(package)]
    for library in ("transformers", "xdpx"):
        line = [sys.executable, "-W", "ignore", str(HERE / "run_libraries.py"), library, str(folder / library), *names]
        done = subprocess.run(line, env=environment(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.mark.slow
@tiers.nightly("test_a_script_in_the_style_of_upstream_logs_the_same_digits")
@pytest.mark.parametrize(("name", "package"), OF_LIBRARIES.items())
def test_a_library_that_derives_from_the_original_logs_the_same_digits_on_ours(
    name: str, package: str, request: pytest.FixtureRequest
) -> None:
    pytest.importorskip("accelerate")
    pytest.importorskip(package)
    folder: Path = request.getfixturevalue("of_libraries")
    found = []
    for library in ("xdpx", "transformers"):
        failure = folder / library / name / "failure.txt"
        assert not failure.exists(), failure.read_text(encoding="utf-8")
        found.append(json.loads((folder / library / name / "outcome.json").read_text(encoding="utf-8")))
    same_digits(*found)
