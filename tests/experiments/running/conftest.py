"""The tiny experiment, and one finished job of it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType

import pytest


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tiny_experiment", Path(__file__).with_name("tiny.py"))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["tiny_experiment"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def tiny() -> ModuleType:
    """The module of the tiny experiment."""
    return sys.modules.get("tiny_experiment") or _load()


@pytest.fixture(scope="session")
def job(
    tiny: ModuleType, tmp_path_factory: pytest.TempPathFactory, drawing: Callable[[], AbstractContextManager[None]]
) -> str:
    """The folder of a job that trained, evaluated and decoded to the end, with its figures."""
    from xdpx.experiments.running import run

    folder = str(tmp_path_factory.mktemp("jobs") / "job")
    with drawing():
        code = run(tiny.Tiny, job_log_dir=folder, eval_on_test=True, decode_during_train=True, device="cpu:1G:16GiB")
    assert code == 0
    return folder
