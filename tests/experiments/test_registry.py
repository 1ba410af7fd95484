"""Names of experiments, in every spelling."""

import os
import subprocess
import sys

import pytest

from xdpx.config.faults import ConfigError
from xdpx.experiments import BaseExperiment, registry
from xdpx.experiments.lm.c4 import C4Spmd1BAdam4Replicas
from xdpx.experiments.registry import names, register, resolve

SOURCE = """
from xdpx.experiments import BaseExperiment, experiment

@experiment
class Mine(BaseExperiment):
    ICI_MESH_SHAPE = (1, 1, 1)
"""


@pytest.fixture(autouse=True)
def _own_names(monkeypatch):
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    monkeypatch.setattr(registry, "_tags", dict(registry._tags))


@pytest.mark.parametrize(
    "name",
    [
        "xdpx.experiments.lm.c4.C4Spmd1BAdam4Replicas", "lm.c4.C4Spmd1BAdam4Replicas", "C4Spmd1BAdam4Replicas",
        "tasks.lm.params.c4.C4Spmd1BAdam4Replicas", "paxml.tasks.lm.params.c4.C4Spmd1BAdam4Replicas",
    ],
)  # fmt: skip
def test_any_end_of_the_name_and_the_old_spellings_resolve(name) -> None:
    assert resolve(name) is C4Spmd1BAdam4Replicas


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"Did you mean 'lm\.c4\.C4Spmd1BAdam4Replicas'"):
        resolve("C4Spmd1BAdam4Replica")


def test_an_end_that_several_names_have_is_refused_with_all_of_them() -> None:
    for module in ("one.a", "two.a"):
        register(type("Same", (BaseExperiment,), {"__module__": module}))
    with pytest.raises(ConfigError, match=r"stands for one\.a\.Same, two\.a\.Same"):
        resolve("a.Same")
    assert resolve("two.a.Same").__module__ == "two.a"


def test_a_class_of_a_file_is_found_by_its_path(tmp_path) -> None:
    file = tmp_path / "my.py"
    file.write_text(SOURCE)
    assert resolve(f"{file}:Mine").__name__ == "Mine"
    assert resolve(f"{file}:Mine") is resolve(f"{file}:Mine")
    with pytest.raises(ConfigError, match="Did you mean .*my.py:Mine"):
        resolve(f"{file}:Mime")
    with pytest.raises(ConfigError, match="there is no file"):
        resolve(f"{tmp_path}/other.py:Mine")
    with pytest.raises(ConfigError, match="s3://bucket/other.py is remote. Copy the file"):
        resolve("s3://bucket/other.py:Mine")


def test_a_module_of_a_file_has_the_same_name_in_every_process(tmp_path) -> None:
    file = tmp_path / "my.py"
    file.write_text(SOURCE)
    code = f"from xdpx.experiments import resolve; print(resolve({f'{file}:Mine'!r}).__module__)"
    told = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert told == {f"{resolve(f'{file}:Mine').__module__}\n"}


def test_a_class_of_a_package_is_imported_when_it_is_asked_for(tmp_path, monkeypatch) -> None:
    (tmp_path / "recipes_of_a_test.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    assert resolve("recipes_of_a_test.Mine").__module__ == "recipes_of_a_test"
    sys.modules.pop("recipes_of_a_test")


def test_a_file_that_fails_says_why(tmp_path) -> None:
    (tmp_path / "bad.py").write_text("1 / 0")
    with pytest.raises(ConfigError, match=r"importing .*bad\.py fails: ZeroDivisionError"):
        resolve(f"{tmp_path}/bad.py:X")


def test_a_taken_name_is_refused_and_a_reload_is_not() -> None:
    made = {"__module__": __name__, "__qualname__": "Again"}
    register(type("Again", (BaseExperiment,), dict(made)))
    register(type("Again", (BaseExperiment,), dict(made)))
    full = f"{__name__}.Again"
    registry._registered[full] = C4Spmd1BAdam4Replicas
    with pytest.raises(ValueError, match="exists already"):
        register(type("Again", (BaseExperiment,), dict(made)))
    register(allow_overwrite=True)(type("Again", (BaseExperiment,), dict(made)))


def test_what_is_no_experiment_is_refused() -> None:
    with pytest.raises(TypeError, match="derive it from"):
        register(int)


def test_experiments_are_listed_by_tag() -> None:
    register(tags=["toy"])(type("Tagged", (BaseExperiment,), {"__module__": "tags"}))
    assert names("toy") == ["tags.Tagged"]
