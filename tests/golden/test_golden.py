"""Every golden run is trained again and compared; and the comparison notices what it is there for."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
import torch

from tests import processes, spmd_devices
from tests.golden import record
from tests.golden.doors import DOORS, Door
from tests.golden.record import Outcome
from tests.tiers import nightly, some

BY_JAX = ("x_exp: ", "engine spmd")
"""What is in the names of all runs that JAX compiles."""
FP16 = "fp16 from too high a scale"
SAME = [
    *(("x_train", f"cls_cnn, {name}, resumed", f"cls_cnn, {name}") for name in ("adam", "EMA", FP16)),
    ("trainer", "toy, resume", "toy, linear schedule"),
    ("trainer", "BERT, resume", "BERT, linear schedule"),
]


@pytest.mark.slow
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.name)
def test_numbers_are_what_they_were(door: Door) -> None:
    assert door.differences([name for name in door.runs if not is_by_jax(f"{door.name}: {name}")]) == []


def is_by_jax(run: str) -> bool:
    return any(words in run for words in BY_JAX)


JAX_RUNS = [(door, name) for door in DOORS for name in door.runs if is_by_jax(f"{door.name}: {name}")]
OF_BOTH_DOORS = ("accumulation of 2, EMA", "bert_classification, engine spmd")
CHECKED = some(JAX_RUNS, [run for run in JAX_RUNS if run[1] in OF_BOTH_DOORS])


@pytest.fixture
def _little_optimized() -> Iterator[None]:
    """Compile with few optimizations, which takes less than half as long and changes the last bits."""
    spmd_devices.optimize_little(True)
    yield
    spmd_devices.optimize_little(False)
    jax.clear_caches()


@pytest.mark.slow
@pytest.mark.usefixtures("_little_optimized")
@pytest.mark.parametrize(("door", "name"), CHECKED, ids=[name for _, name in CHECKED])
def test_numbers_of_jax_are_those_of_another_computer_however_it_compiles(door: Door, name: str) -> None:
    assert door.differences([name], as_users_compile=False) == []


@pytest.mark.slow
@nightly("test_numbers_of_jax_are_those_of_another_computer_however_it_compiles")
def test_numbers_of_jax_are_what_they_were_compiled_as_users_compile() -> None:
    """In a process of its own: this one may have read how XLA is to compile for all other tests."""
    line = [sys.executable, "-m", "tests.golden", "check", *BY_JAX]
    (ended,) = processes.run_together([line], [processes.environment(XLA_FLAGS="", JAX_DISABLE_MOST_OPTIMIZATIONS="0")])
    assert ended.code == 0, processes.told([ended])
    assert ended.text.splitlines()[-1] == f"{len(JAX_RUNS)} runs checked, 0 differences"
    assert len(JAX_RUNS) >= 3


@pytest.mark.parametrize(("door", "resumed", "undisturbed"), SAME)
def test_a_resumed_run_was_recorded_with_the_numbers_of_the_undisturbed_one(
    door: str, resumed: str, undisturbed: str
) -> None:
    golden, _ = record.read(Path(__file__).with_name(f"{door}.txt"))
    assert golden[resumed] == golden[undisturbed]


def test_what_is_written_is_read_back_to_the_bit(tmp_path: Path) -> None:
    outcomes = {"a, b": Outcome([0.1, 1 / 3, math.inf], "abc"), "c": Outcome([], "def")}
    record.write(tmp_path / "runs.txt", outcomes, on="this, that")
    assert record.read(tmp_path / "runs.txt") == (outcomes, "this, that")


@pytest.mark.parametrize(
    ("name", "found", "to_the_bit", "told"),
    [
        ("a", Outcome([1.0, 2.0], "w"), True, None),
        ("a", Outcome([1.0, math.nextafter(2.0, 3.0)], "w"), True, "differ by up to 2.2e-16; the first is number 2"),
        ("a", Outcome([1.0, 2.0], "v"), True, "the final weights differ"),
        ("a", Outcome([1.0], "w"), True, "1 losses instead of 2"),
        ("a", Outcome([1.0, math.nan], "w"), False, "differ by up to inf"),
        ("a", Outcome([1.0, 2.00001], "v"), False, None),
        ("a", Outcome([1.0, 2.001], "w"), False, "differ by up to 5.0e-04"),
        ("a, bf16", Outcome([1.0, 2.001], "w"), False, None),
    ],
)
def test_a_difference_is_told(name: str, found: Outcome, to_the_bit: bool, told: str | None) -> None:
    line = record.difference(name, found, Outcome([1.0, 2.0], "w"), to_the_bit=to_the_bit)
    assert line is None if told is None else told in str(line)


def test_the_hash_knows_every_bit_and_name_and_no_order() -> None:
    weights = {"a": torch.tensor([1.0, -0.0]), "b": torch.ones(2, 2)}
    assert record.hash_of(weights) == record.hash_of(dict(reversed(weights.items())))
    assert record.hash_of(weights) != record.hash_of({**weights, "a": torch.tensor([1.0, 0.0])})
    assert record.hash_of({"c": weights["a"]}) != record.hash_of({"a": weights["a"]})
