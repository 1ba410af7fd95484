"""The toy task, and engines for it that are compiled only once."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np
import pytest

from xdpx.engines.spmd.engine import SpmdEngine, SpmdOptions
from xdpx.engines.spmd.mesh import make_mesh

STEPS = 50


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("spmd_toy", Path(__file__).with_name("toy.py"))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # flax looks up the module of classes
    spec.loader.exec_module(module)
    return module


_TOY = _load()


@pytest.fixture(scope="session")
def toy() -> ModuleType:
    """The module with task, rules and batches."""
    return _TOY


@pytest.fixture(scope="session")
def engine_on(toy: ModuleType) -> Callable[..., SpmdEngine]:
    """Return a function that returns an engine for the toy task on a mesh, cached by its arguments."""
    made: dict[Any, SpmdEngine] = {}

    def give(ici: list[int], dcn: list[int] | None = None, **options: Any) -> SpmdEngine:
        key = (tuple(ici), tuple(dcn or ()), tuple(sorted(options.items())))
        if key not in made:
            count = int(np.prod(ici) * np.prod(dcn or [1]))
            mesh = make_mesh(ici, dcn, devices=jax.devices()[:count])
            made[key] = SpmdEngine(
                toy.Task(), mesh=mesh, rules=toy.RULES, options=SpmdOptions(**options), spec=toy.SPEC
            )
        return made[key]

    return give


@pytest.fixture(scope="session")
def one_device(engine_on: Callable[..., SpmdEngine]) -> SpmdEngine:
    """The engine that all others are compared with."""
    return engine_on([1, 1, 1])


@pytest.fixture(scope="session")
def curve(one_device: SpmdEngine, toy: ModuleType) -> list[float]:
    """Its losses over 50 steps."""
    return toy.train(one_device, STEPS)[1]
