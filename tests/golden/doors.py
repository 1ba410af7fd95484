"""The three doors (x-train, Trainer, x-exp): how the golden runs of each are computed, recorded and compared."""

from __future__ import annotations

import io
import shutil
from collections.abc import Collection, Generator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp

import torch

from tests.golden import record
from tests.spmd_devices import imitate_devices


@dataclass(frozen=True)
class Door:
    """One of the three doors.

    Attributes:
        name: of the module in this package with the runs, and of the file with their outcomes.
        packages: those whose versions affect the last bits.
    """

    name: str
    packages: tuple[str, ...]

    @property
    def file(self) -> Path:
        """The file of golden outcomes."""
        return Path(__file__).with_name(f"{self.name}.txt")

    @property
    def runs(self) -> record.Runs:
        """The runs by name."""
        imitate_devices()
        found: record.Runs = import_module(f"tests.golden.{self.name}").RUNS
        return found

    def train(self, names: Collection[str]) -> dict[str, record.Outcome]:
        """Train the runs with these names."""
        with _one_thread(), _folder() as folder:
            return {name: _quietly(name, run, folder) for name, run in self.runs.items() if name in names}

    def write(self, names: Collection[str]) -> None:
        """Train and record the runs with these names, or all runs if the file is from another computer."""
        here = record.computer(*self.packages)
        golden, on = record.read(self.file) if self.file.exists() else ({}, "")
        found = golden | self.train(names) if on == here else self.train(self.runs)
        record.write(self.file, {name: found[name] for name in self.runs if name in found}, on=here)

    def differences(self, names: Collection[str], *, as_users_compile: bool = True) -> list[str]:
        """Train the runs with these names, and return one line for each that differs from its golden outcome.

        If JAX compiles otherwise here than for users, losses are compared as on another computer.
        """
        golden, on = record.read(self.file)
        to_the_bit = as_users_compile and on == record.computer(*self.packages)
        unmatched = [f"{name}: is in {self.file.name} only" for name in golden.keys() - self.runs.keys()]
        unmatched += [f"{name}: is not in {self.file.name}" for name in self.runs.keys() - golden.keys()]
        found = self.train([name for name in names if name in golden])
        told = (record.difference(name, found[name], golden[name], to_the_bit=to_the_bit) for name in found)
        return [*sorted(unmatched), *(line for line in told if line)]


DOORS = (
    Door("x_train", ("torch", "numpy", "jax")),
    Door("trainer", ("torch", "numpy", "transformers")),
    Door("x_exp", ("jax", "numpy")),
)


def _quietly(name: str, run: record.Run, folder: Path) -> record.Outcome:
    """Train silently, except for a failure."""
    said = io.StringIO()
    try:
        with redirect_stdout(said), redirect_stderr(said):
            return run(folder)
    except Exception as error:
        raise RuntimeError(f"the run '{name}' failed after it had said:\n{said.getvalue()}") from error


@contextmanager
def _one_thread() -> Generator[None]:
    """Use one thread in torch, because the number of threads decides the order of sums."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _folder() -> Generator[Path]:
    """Yield a temporary folder."""
    folder = mkdtemp(prefix="xdpx-golden-")
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
